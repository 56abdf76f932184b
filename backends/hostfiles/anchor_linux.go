package hostfiles

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// zone is a region of the tree within which the kernel renames without EXDEV:
// one mount (a bind mount of the same filesystem is another), one btrfs
// subvolume (its own device number), one project quota, one side of an
// encryption boundary.
type zone struct {
	mount, dev uint64
	project    uint32
	inherits   bool // what is made in it gets the project, and nothing of another may come in
	encrypted  bool
}

// anchors finds where to put the hidden directory for each parent.
type anchors struct {
	t    *tree
	base change.Path // nothing is put above it while it will do itself
	memo map[change.Path]anchor
}

type anchor struct {
	zone zone
	at   change.Path // empty when no directory will do
}

func newAnchors(t *tree, base change.Path) *anchors {
	return &anchors{t, base, map[change.Path]anchor{}}
}

// of returns the highest directory in d's zone that can hold a hidden directory
// safely. The highest, not the nearest: programs read configuration directories
// whole, some of them dot files included, but none reads the top of a mount so,
// and one place serves most targets. Never above the base, which is all that the
// environment may touch.
func (a *anchors) of(d change.Path) (anchor, error) {
	if found, ok := a.memo[d]; ok {
		return found, nil
	}
	n, fd, err := a.enter(d)
	if err != nil {
		return anchor{}, err
	}
	defer unix.Close(fd)
	own := anchor{zone: zoneOf(fd, n)}
	if fitting(fd, n) {
		own.at = d
	}
	if d != "/" && (d != a.base || own.at == "") {
		up, _ := split(d)
		above, err := a.of(up)
		if err != nil {
			return anchor{}, err
		}
		if above.zone == own.zone && above.at != "" {
			own.at = above.at
		}
	}
	a.memo[d] = own
	return own, nil
}

func (a *anchors) enter(d change.Path) (*node, int, error) {
	fd, err := a.t.open(d, unix.O_RDONLY|unix.O_DIRECTORY)
	if os.IsPermission(err) { // may be searched but not listed: no project id then
		fd, err = a.t.open(d, unix.O_PATH|unix.O_DIRECTORY)
	}
	if err != nil {
		return nil, -1, err
	}
	n, err := stat(fd, "")
	if err != nil {
		unix.Close(fd)
		return nil, -1, err
	}
	return n, fd, nil
}

func zoneOf(fd int, n *node) zone {
	id, inherits := project(fd)
	return zone{n.mount, n.dev, id, inherits, n.attrs&unix.STATX_ATTR_ENCRYPTED != 0}
}

// fitting reports a directory that we can write to and in which nobody else can
// rename or remove our hidden directory.
func fitting(fd int, n *node) bool {
	if n.attrs&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0 {
		return false
	}
	if n.mode&0o022 != 0 && n.mode&unix.S_ISVTX == 0 {
		return false
	}
	if uid := uint32(os.Geteuid()); uid != 0 && n.uid != uid && n.uid != 0 {
		return false // its owner could
	}
	return unix.Faccessat2(fd, "", unix.W_OK|unix.X_OK, unix.AT_EACCESS|unix.AT_EMPTY_PATH) == nil
}

// fsxattr is struct fsxattr of linux/fs.h.
type fsxattr struct {
	xflags, extsize, nextents, project, cowextsize uint32
	_                                              [8]byte
}

// fsGetXattr is FS_IOC_FSGETXATTR, _IOR('X', 31, struct fsxattr); the same on
// every architecture of the asm-generic kind, which x/sys does not export.
const fsGetXattr = 0x801c581f

// projectInherits is FS_XFLAG_PROJINHERIT of linux/fs.h.
const projectInherits = 0x200

// project returns the project quota id, 0 where the filesystem has none, and
// whether a directory passes it on. rename(2) into one that does is EXDEV for
// other ids.
func project(fd int) (id uint32, inherits bool) {
	var x fsxattr
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsGetXattr, uintptr(unsafe.Pointer(&x))); e != 0 {
		return 0, false
	}
	return x.project, x.xflags&projectInherits != 0
}

// hiddenDir returns the hidden directory of a transaction for targets in parent.
func (a *anchors) hiddenDir(txn string, parent change.Path) (change.Path, error) {
	found, err := a.of(parent)
	if err != nil {
		return "", err
	}
	if found.at == "" {
		return "", fmt.Errorf("stage beside %s: no directory above it on its mount is writable by us alone: %w",
			parent, os.ErrPermission)
	}
	return join(found.at, ".netsandbox-"+txn), nil
}
