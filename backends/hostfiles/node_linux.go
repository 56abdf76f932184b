package hostfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// node is what statx(2) says of one object.
type node struct {
	fmt      uint32 // S_IFMT bits
	mode     uint32
	uid, gid uint32
	nlink    uint64
	size     int64
	held     int64 // bytes allocated
	mtime    int64
	ctime    int64
	dev, ino uint64
	mount    uint64 // mount id; 0 where the kernel (before 5.8) does not say
	attrs    uint64 // STATX_ATTR_*
	known    uint64 // which of them the filesystem answers for
}

// stat describes name in dir; with an empty name, dir itself.
func stat(dir int, name string) (*node, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var s unix.Statx_t
	for {
		err := unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &s)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "stat", Path: change.Escape(name), Err: err}
		}
		break
	}
	n := &node{
		fmt: uint32(s.Mode) & unix.S_IFMT, mode: uint32(s.Mode) & 0o7777,
		uid: s.Uid, gid: s.Gid, nlink: uint64(s.Nlink), size: int64(s.Size), held: int64(s.Blocks) * 512,
		mtime: nanos(s.Mtime), ctime: nanos(s.Ctime),
		dev: unix.Mkdev(s.Dev_major, s.Dev_minor), ino: s.Ino,
		attrs: s.Attributes, known: s.Attributes_mask,
	}
	if s.Mask&unix.STATX_MNT_ID != 0 {
		n.mount = s.Mnt_id
	}
	return n, nil
}

func nanos(ts unix.StatxTimestamp) int64 { return change.Nanos(ts.Sec, ts.Nsec) }

// lstat describes an absolute path, following no symlink anywhere in it.
func (t *tree) lstat(p change.Path) (*node, error) {
	if p == "/" {
		return stat(t.root, "")
	}
	dir, base, err := t.parent(p)
	if err != nil {
		return nil, err
	}
	return stat(dir, base)
}

// is reports whether n is the object that was recorded. Device numbers of btrfs,
// NFS and device mapper change at a reboot, so the caller gives the one that
// the filesystem has now.
func (n *node) is(id *change.Identity, dev uint64) bool {
	return n != nil && id != nil && n.ino == id.Ino && n.dev == dev
}

func (n *node) identity() *change.Identity {
	return &change.Identity{Dev: n.dev, Ino: n.ino, CTime: n.ctime}
}

// kind names the file type in the words of [change.FileType], and types that no
// plan can hold in words of the same sort.
func (n *node) kind() change.FileType {
	switch n.fmt {
	case unix.S_IFREG:
		return change.Regular
	case unix.S_IFDIR:
		return change.Directory
	case unix.S_IFLNK:
		return change.Symlink
	case unix.S_IFIFO:
		return change.Fifo
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

// sparse reports a regular file that occupies less than its size.
func (n *node) sparse() bool { return n.fmt == unix.S_IFREG && n.held < n.size }

// entry describes name in dir in full. Where known has the same identity, size
// and change time, content and attributes are taken from it unread. A fifo is
// never opened: that would be news to whoever has the other end.
func (t *tree) entry(dir int, name string, known *change.Entry) (*change.Entry, error) {
	for range 3 {
		n, err := stat(dir, name)
		if err != nil {
			return nil, err
		}
		e := n.entry()
		if e.Type == change.Regular && unchanged(e, known) {
			e.SHA256, e.Xattrs = known.SHA256, known.Xattrs
			return e, nil
		}
		if e.Xattrs, err = xattr.Planned(dir, name); err != nil {
			return nil, err
		}
		switch e.Type {
		case change.Symlink:
			target, err := readlink(dir, name)
			e.Target = change.Path(target)
			return e, err
		case change.Regular:
			after, sum, err := t.read(dir, name, n)
			if err != nil {
				return nil, err
			}
			after.held = n.held // moves with write-back
			if *after != *n || settle(n.ctime) {
				continue // written, or exchanged, while it was read
			}
			e.SHA256 = sum
		}
		return e, nil
	}
	return nil, fmt.Errorf("read %s: %w", change.Escape(name), errBusy)
}

// entry is what one look tells.
func (n *node) entry() *change.Entry {
	e := &change.Entry{
		Type: n.kind(), Mode: n.mode, UID: n.uid, GID: n.gid, MTime: n.mtime, ID: n.identity(),
	}
	if e.Type == change.Regular {
		e.Size, e.Links, e.Sparse = n.size, n.nlink, n.sparse()
	}
	if e.Sparse {
		e.Allocated = n.held
	}
	return e
}

// tick is longer than the grain of file times, which is a timer tick (10 ms at
// most) before multigrain timestamps (6.13). Within one, a second write leaves
// the change time that the first one set.
const tick = 20 * time.Millisecond

// settle waits until a change time is a tick old and reports that it had to: what
// was read before may have been written since without showing it. A time in the
// future, from before the clock was set back, no later write can have.
func settle(ctime int64) bool {
	age := time.Duration(time.Now().UnixNano() - ctime)
	if age < 0 || age >= tick {
		return false
	}
	time.Sleep(tick - age)
	return true
}

// unchanged reports that e, fresh and without a hash, is the object that was
// hashed as known.
func unchanged(e, known *change.Entry) bool {
	return known != nil && known.ID != nil && known.SHA256 != "" && *known.ID == *e.ID &&
		known.Size == e.Size && known.Type == e.Type
}

// read hashes the regular file that was seen as n, and describes it as it was
// when reading ended.
func (t *tree) read(dir int, name string, seen *node) (*node, string, error) {
	fd, err := openFile(dir, name)
	if err != nil {
		return nil, "", &os.PathError{Op: "open", Path: change.Escape(name), Err: err}
	}
	defer unix.Close(fd)
	h := sha256.New()
	if seen.sparse() {
		err = hashHoled(h, fd, seen.size, t.buf)
	} else {
		err = hashAll(h, fd, t.buf)
	}
	if err != nil {
		return nil, "", &os.PathError{Op: "read", Path: change.Escape(name), Err: err}
	}
	n, err := stat(fd, "")
	if err != nil || seen.sparse() && n.size != seen.size {
		return n, "", err // it has no hash that anybody knows
	}
	return n, hex.EncodeToString(h.Sum(nil)), nil
}

func hashAll(h hash.Hash, fd int, buf []byte) error {
	for {
		k, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case k == 0:
			return nil
		default:
			h.Write(buf[:k])
		}
	}
}

// openFile opens a file for reading. It never waits, should a fifo have taken
// its place, and leaves the access time alone where it may.
func openFile(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_NOCTTY
	fd, err := openBelow(dir, name, flags|unix.O_NOATIME)
	if err == unix.EPERM { // O_NOATIME is the owner's and root's
		fd, err = openBelow(dir, name, flags)
	}
	return fd, err
}

func readlink(dir int, name string) (string, error) {
	buf := make([]byte, 4096) // PATH_MAX bounds a link's target
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: change.Escape(name), Err: err}
	}
	return string(buf[:n]), nil
}

// names lists a directory.
func names(dir int, name string) ([]string, error) {
	fd, err := openBelow(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: change.Escape(name), Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	list, err := f.Readdirnames(-1)
	if err == io.EOF {
		err = nil
	}
	return list, err
}
