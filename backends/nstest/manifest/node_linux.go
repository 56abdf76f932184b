package manifest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// node is one entry of an open directory, or with an empty name the directory.
type node struct {
	dir  int
	name string
	st   unix.Statx_t
}

func look(dir int, name string) (*node, error) {
	n := &node{dir: dir, name: name}
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS, &n.st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: printable(name), Err: err}
	}
	return n, nil
}

func (n *node) format() uint16 { return n.st.Mode & unix.S_IFMT }

func (n *node) id() inode { return inode{n.st.Dev_major, n.st.Dev_minor, n.st.Ino} }

// open opens a file or directory for reading. Should a fifo have taken its place,
// O_NONBLOCK keeps the call from waiting for a writer.
func (n *node) open(flags int) (int, error) {
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	name := n.name
	if name == "" {
		name = "."
	}
	fd, err := unix.Openat(n.dir, name, flags|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // O_NOATIME is the owner's and root's
		fd, err = unix.Openat(n.dir, name, flags, 0)
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: printable(n.name), Err: err}
	}
	return fd, nil
}

// lines describes the object without its path.
func (n *node) lines(number bool) ([]string, error) {
	own, more, err := n.kind()
	if err != nil {
		return nil, err
	}
	own += fmt.Sprintf(" %d:%d", n.st.Uid, n.st.Gid)
	if number {
		own += fmt.Sprintf("%s%d", Inode, n.st.Ino)
	}
	own += fmt.Sprintf("%s%d.%09d", MTime, n.st.Mtime.Sec, n.st.Mtime.Nsec)
	attrs, err := n.attributes()
	if err != nil {
		return nil, err
	}
	flags, err := n.flags()
	return slices.Concat([]string{own}, more, attrs, flags), err
}

// An object's own line ends with the first two, in this order, so that a reader
// can cut off what it does not want to compare.
const (
	Inode = " inode " // before the inode number, if it is shown
	MTime = " mtime " // before the modification time
	Data  = " data"   // before the places of a file with holes, "offset+length", on a line of their own
)

// kind begins an object's own line, and returns the line about holes.
func (n *node) kind() (own string, more []string, err error) {
	mode := fmt.Sprintf("%04o", n.st.Mode&0o7777)
	switch n.format() {
	case unix.S_IFREG:
		return n.file(mode)
	case unix.S_IFDIR:
		return "directory " + mode, nil, nil
	case unix.S_IFLNK: // its mode means nothing
		buf := make([]byte, unix.PathMax)
		size, err := unix.Readlinkat(n.dir, n.name, buf)
		if err != nil {
			return "", nil, fmt.Errorf("read link: %w", err)
		}
		return fmt.Sprintf("symlink to %s", printable(string(buf[:size]))), nil, nil
	case unix.S_IFIFO:
		return "fifo " + mode, nil, nil
	case unix.S_IFSOCK:
		return "socket " + mode, nil, nil
	case unix.S_IFBLK:
		return fmt.Sprintf("block device %s %d:%d", mode, n.st.Rdev_major, n.st.Rdev_minor), nil, nil
	}
	return fmt.Sprintf("character device %s %d:%d", mode, n.st.Rdev_major, n.st.Rdev_minor), nil, nil
}

// attributes lists the extended attributes. The calls that take a directory
// descriptor came with Linux 6.13; the kernel's own links to descriptors serve
// as well, and their l variants do not follow the last element.
func (n *node) attributes() ([]string, error) {
	path := fmt.Sprintf("/proc/self/fd/%d/%s", n.dir, n.name)
	if n.name == "" {
		path += "."
	}
	buf := make([]byte, 64<<10) // XATTR_LIST_MAX and XATTR_SIZE_MAX
	size, err := unix.Llistxattr(path, buf)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list attributes: %w", err)
	}
	names := strings.FieldsFunc(string(buf[:size]), func(r rune) bool { return r == 0 })
	slices.Sort(names)
	var lines []string
	for _, name := range names {
		if strings.HasPrefix(name, "trusted.overlay.") {
			continue
		}
		size, err := unix.Lgetxattr(path, name, buf)
		if err != nil {
			return nil, fmt.Errorf("read attribute %s: %w", name, err)
		}
		lines = append(lines, fmt.Sprintf("xattr %s %q", name, buf[:size]))
	}
	return lines, nil
}

// flags tells what chattr(1) forbids. Where statx(2) does not answer, as on some
// filesystems and layers, FS_IOC_GETFLAGS does.
func (n *node) flags() ([]string, error) {
	const both = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND
	immutable, appendOnly := n.st.Attributes&unix.STATX_ATTR_IMMUTABLE != 0, n.st.Attributes&unix.STATX_ATTR_APPEND != 0
	if f := n.format(); n.st.Attributes_mask&both != both && (f == unix.S_IFREG || f == unix.S_IFDIR) {
		fd, err := n.open(0)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		if flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS); err == nil {
			// FS_IMMUTABLE_FL and FS_APPEND_FL of linux/fs.h.
			immutable, appendOnly = flags&0x10 != 0, flags&0x20 != 0
		}
	}
	var lines []string
	if immutable {
		lines = append(lines, "flag immutable")
	}
	if appendOnly {
		lines = append(lines, "flag append-only")
	}
	return lines, nil
}
