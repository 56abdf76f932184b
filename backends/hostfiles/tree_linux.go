package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// resolve is how every path is walked: never out of the directory it starts
// from, never through a symlink. Mounts are crossed, because a target may lie on
// any; that the last step stays on the parent's mount is the caller's check.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// chunk bounds what one openat2(2) gets: PATH_MAX counts the terminating NUL.
const chunk = 4000

// tree is the host's files during one call. It keeps the last parent open,
// because steps come sorted by path, and each hidden directory.
type tree struct {
	root   int
	dir    int // the last parent, O_PATH; -1 when there is none
	at     change.Path
	up     *node // what dir is; nil when not asked for yet
	hidden map[change.Path]int
	buf    []byte // for reading content
}

func openTree(root string) (*tree, error) {
	// The root is the administrator's word, so links on the way to it count.
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open root", Path: root, Err: err}
	}
	return newTree(fd), nil
}

func newTree(root int) *tree {
	return &tree{root: root, dir: -1, hidden: map[change.Path]int{}, buf: make([]byte, 128<<10)}
}

// clone returns the same files for another goroutine. It starts from the open
// root, not from its path, which another thread may see as something else.
func (t *tree) clone() (*tree, error) {
	fd, err := unix.FcntlInt(uintptr(t.root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return newTree(fd), nil
}

// share calls look for 0 to n-1 on all processors, each with a tree of its own,
// until one fails.
func (t *tree) share(n int, look func(*tree, int) error) error {
	return spread(n, func(lo, hi int) error {
		own, err := t.clone()
		if err != nil {
			return err
		}
		defer own.close()
		for i := lo; i < hi && err == nil; i++ {
			err = look(own, i)
		}
		return err
	})
}

func (t *tree) close() {
	t.forget()
	for _, fd := range t.hidden {
		unix.Close(fd)
	}
	unix.Close(t.root)
}

// forget closes the cached parent.
func (t *tree) forget() {
	if t.dir >= 0 {
		unix.Close(t.dir)
	}
	t.dir, t.at, t.up = -1, "", nil
}

// open opens an absolute path below the root, following no symlink.
func (t *tree) open(p change.Path, flags int) (int, error) {
	fd, err := openBelow(t.root, strings.TrimPrefix(string(p), "/"), flags)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: p.String(), Err: err}
	}
	return fd, nil
}

// parent returns the directory that holds p, which stays the tree's, and p's
// name in it.
func (t *tree) parent(p change.Path) (int, string, error) {
	d, base := split(p)
	if base == "" {
		return -1, "", fmt.Errorf("parent of %s: %w", p, unix.EINVAL)
	}
	if t.dir >= 0 && t.at == d {
		return t.dir, base, nil
	}
	fd, err := t.open(d, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, "", err
	}
	t.forget()
	t.dir, t.at = fd, d
	return fd, base, nil
}

// above says which object a parent is. That cannot change while it is open, so it
// is asked once; everything else about it may, and is not to be taken from here.
func (t *tree) above(dir int) (*node, error) {
	if dir == t.dir && t.up != nil {
		return t.up, nil
	}
	n, err := stat(dir, "")
	if dir == t.dir {
		t.up = n
	}
	return n, err
}

// place opens a hidden directory for reading, so that it can be flushed, and
// keeps it open.
func (t *tree) place(dir change.Path) (int, error) {
	if fd, ok := t.hidden[dir]; ok {
		return fd, nil
	}
	fd, err := t.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	t.hidden[dir] = fd
	return fd, nil
}

// openBelow walks rel from dir in pieces that the kernel accepts.
func openBelow(dir int, rel string, flags int) (int, error) {
	cur := dir
	for {
		head, rest := rel, ""
		if len(rel) > chunk {
			cut := strings.LastIndexByte(rel[:chunk], '/')
			if cut <= 0 {
				return -1, unix.ENAMETOOLONG
			}
			head, rest = rel[:cut], rel[cut+1:]
		}
		if head == "" {
			head = "."
		}
		how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolve}
		if rest != "" {
			how.Flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
		}
		fd, err := openat2(cur, head, &how)
		if cur != dir {
			unix.Close(cur)
		}
		if err != nil || rest == "" {
			return fd, err
		}
		cur, rel = fd, rest
	}
}

// openat2 repeats what the kernel gave up because something was renamed
// meanwhile, and what a signal interrupted.
func openat2(dir int, name string, how *unix.OpenHow) (int, error) {
	for range 64 {
		fd, err := unix.Openat2(dir, name, how)
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// absent reports that a path, taken literally, leads to nothing.
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}
