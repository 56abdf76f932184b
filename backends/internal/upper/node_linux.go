package upper

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// node is one directory entry, named relative to an open directory, which makes
// every later look at it immune to a swapped parent. It is valid only while its
// directory is being walked.
type node struct {
	dir  int
	name string
	st   unix.Statx_t
	// attrs are all extended attributes, once listed: every look at an object
	// that asks for them costs the host's filesystem a read of its own.
	attrs  map[string][]byte
	listed bool
}

// lookup returns the entry, or nil when there is none.
func lookup(dir int, name string) (*node, error) {
	n := &node{dir: dir, name: name}
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_SYNC_AS_STAT
	err := unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME|unix.STATX_MNT_ID, &n.st)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stat %s: %w", change.Escape(name), err)
	}
	return n, nil
}

// renew takes over what a later look at the same name has seen.
func (n *node) renew(after *node) {
	if keyOf(n) != keyOf(after) {
		n.attrs, n.listed = nil, false
	}
	n.st = after.st
}

func (n *node) format() uint16 { return n.st.Mode & unix.S_IFMT }
func (n *node) isDir() bool    { return n != nil && n.format() == unix.S_IFDIR }
func (n *node) regular() bool  { return n != nil && n.format() == unix.S_IFREG }
func (n *node) fifo() bool     { return n != nil && n.format() == unix.S_IFIFO }

// whiteout reports overlayfs's mark of a deletion. All whiteouts of an upper may
// be links to one inode (Linux 6.x), so they are never a hard-link group.
func (n *node) whiteout() bool {
	return n.format() == unix.S_IFCHR && n.st.Rdev_major == 0 && n.st.Rdev_minor == 0
}

// mountPoint reports that another mount covers the entry (STATX_ATTR_MOUNT_ROOT,
// Linux 5.8): what is seen is not the lower that the overlay has.
func (n *node) mountPoint() bool {
	return n.st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && n.st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// covered reports that another mount hides what the overlay has under this
// entry. A directory that is bound on itself hides nothing.
func (l *layer) covered(n *node, path change.Path) (bool, error) {
	if n == nil || !n.mountPoint() {
		return false, nil
	}
	if !n.isDir() || l.source.Dev == "" {
		return true, nil
	}
	m, err := mountByID(n.st.Mnt_id)
	if err != nil || m == nil {
		return true, err
	}
	rel := strings.TrimPrefix(string(path), strings.TrimSuffix(l.source.Point, "/"))
	self := strings.TrimSuffix(l.source.Root, "/") + rel
	return m.Root != self || fmt.Sprintf("%d:%d", m.Major, m.Minor) != l.source.Dev, nil
}

// fileType is the word for the entry's type, also for those no plan can hold.
func (n *node) fileType() change.FileType {
	switch n.format() {
	case unix.S_IFREG:
		return change.Regular
	case unix.S_IFDIR:
		return change.Directory
	case unix.S_IFLNK:
		return change.Symlink
	case unix.S_IFIFO:
		return change.Fifo
	case unix.S_IFSOCK:
		return socket
	default:
		return "device"
	}
}

// socket is a type that no plan holds: only the process that listens on one can
// make it.
const socket change.FileType = "socket"

func plannable(t change.FileType) bool {
	switch t {
	case change.Regular, change.Directory, change.Symlink, change.Fifo:
		return true
	}
	return false
}

func nanos(t unix.StatxTimestamp) int64 { return change.Nanos(t.Sec, t.Nsec) }

func (n *node) ctime() int64 { return nanos(n.st.Ctime) }

// born is when the entry came into the upper: for a copied-up file its birth is
// the moment of the copy-up.
func (n *node) born() int64 {
	if n.st.Mask&unix.STATX_BTIME != 0 {
		return nanos(n.st.Btime)
	}
	return n.ctime()
}

func (n *node) identity() change.Identity {
	return change.Identity{
		Dev: unix.Mkdev(n.st.Dev_major, n.st.Dev_minor), Ino: n.st.Ino, CTime: n.ctime(),
	}
}

// held is what the file occupies on its filesystem, in bytes.
func (n *node) held() int64 { return int64(n.st.Blocks) * 512 }

func (n *node) sparse() bool { return n.held() < int64(n.st.Size) }

// inode tells which names are one file.
func (n *node) inode() inode {
	return inode{unix.Mkdev(n.st.Dev_major, n.st.Dev_minor), n.st.Ino}
}

// entry describes the node without its content hash.
func (n *node) entry() (*change.Entry, error) {
	if n == nil {
		return nil, nil
	}
	id := n.identity()
	e := &change.Entry{
		Type: n.fileType(), Mode: uint32(n.st.Mode & 0o7777), UID: n.st.Uid, GID: n.st.Gid,
		MTime: nanos(n.st.Mtime), ID: &id,
	}
	all, err := n.xattrs()
	if err != nil {
		return nil, err
	}
	e.Xattrs = xattr.Filter(all)
	switch e.Type {
	case change.Regular:
		e.Size, e.Links = int64(n.st.Size), uint64(n.st.Nlink)
		if n.sparse() {
			e.Sparse, e.Allocated = true, n.held()
		}
	case change.Symlink:
		target, err := n.readlink()
		if err != nil {
			return nil, err
		}
		e.Target = target
	}
	return e, nil
}

func (n *node) readlink() (change.Path, error) {
	b := make([]byte, unix.PathMax)
	k, err := unix.Readlinkat(n.dir, n.name, b)
	if err != nil {
		return "", fmt.Errorf("readlink %s: %w", change.Escape(n.name), err)
	}
	return change.Path(b[:k]), nil
}
