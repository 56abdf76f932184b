package upper

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// trail is the chain of upper directories that leads to a path, each with the
// lower directory it lies over, so that what an edit leaves empty can be taken
// away again from the inside out.
type trail struct{ steps []*step }

type step struct {
	layer *layer
	above *step
	name  string // in the step above; empty for the top
	path  change.Path
	up    int
	lo    int // -1 when the host has no such directory
}

// errReplaced: the path lies below something that is no directory in the view.
var errReplaced = errors.New("a directory above it was replaced in the view; reset that one")

// follow opens the directories above rel and returns its last element, or
// nothing when the layer says nothing about the path. With revive, a deleted
// directory on the way is turned into one whose entries are deleted singly.
func (t *trail) follow(l *layer, rel string, revive bool) (string, error) {
	up, err := openDir(l.upper, ".")
	if err != nil {
		return "", err
	}
	at := &step{layer: l, path: l.path(""), up: up, lo: -1}
	t.steps = append(t.steps, at)
	if l.lower >= 0 {
		if at.lo, err = openDir(l.lower, "."); err != nil {
			return "", err
		}
	}
	elements := strings.Split(rel, "/")
	for _, name := range elements[:len(elements)-1] {
		next, err := at.down(name, revive)
		if err != nil || next == nil {
			return "", err
		}
		t.steps = append(t.steps, next)
		at = next
	}
	return elements[len(elements)-1], nil
}

func (t *trail) last() *step { return t.steps[len(t.steps)-1] }

func (t *trail) close() {
	for _, s := range t.steps {
		unix.Close(s.up)
		if s.lo >= 0 {
			unix.Close(s.lo)
		}
	}
}

// down opens a directory of the step; nil when the layer says nothing below it.
func (s *step) down(name string, revive bool) (*step, error) {
	u, err := lookup(s.up, name)
	if err != nil {
		return nil, err
	}
	below, err := s.lowerDir(name)
	if err != nil {
		return nil, err
	}
	deleted := u != nil && u.whiteout() || u == nil && s.opaque()
	switch {
	case deleted && below >= 0 && revive:
		err = s.revive(name, below)
	case deleted || u == nil:
		return nil, closing(below, nil)
	case !u.isDir() && below >= 0 && revive:
		return nil, closing(below, errReplaced)
	case !u.isDir():
		return nil, closing(below, nil)
	}
	if err != nil {
		return nil, closing(below, err)
	}
	up, err := openDir(s.up, name)
	if err != nil {
		return nil, closing(below, err)
	}
	return &step{layer: s.layer, above: s, name: name, path: join(s.path, name), up: up, lo: below}, nil
}

// lowerDir opens the host's directory of that name, -1 when there is none or
// another mount hides it.
func (s *step) lowerDir(name string) (int, error) {
	if s.lo < 0 {
		return -1, nil
	}
	n, err := lookup(s.lo, name)
	if err != nil || !n.isDir() {
		return -1, err
	}
	if covered, err := s.layer.covered(n, join(s.path, name)); err != nil || covered {
		return -1, err
	}
	fd, err := openDirWithin(s.lo, name, 0)
	if gone(err) {
		return -1, nil
	}
	return fd, err
}

func closing(fd int, err error) error {
	if fd >= 0 {
		unix.Close(fd)
	}
	return err
}

// opaque reports that the directory shows nothing of the host's. Below one that
// is marked so, none needs a mark.
func (s *step) opaque() bool {
	return s.marked() || s.above != nil && s.above.opaque()
}

func (s *step) marked() bool {
	attrs, err := (&node{dir: s.up, name: "."}).xattrs()
	return err == nil && opaque(attrs)
}

// revive replaces the deletion of a whole directory by a directory in which
// every entry is deleted. It is made beside the upper and exchanged into place,
// so that a crash leaves one or the other.
func (s *step) revive(name string, below int) error {
	if err := s.clearOpaque(""); err != nil {
		return err
	}
	side, err := unix.Open(s.layer.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open layer: %w", err)
	}
	defer unix.Close(side)
	const temp = "reviving"
	if err := removeTree(side, temp); err != nil {
		return err
	}
	if err := unix.Mkdirat(side, temp, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	fd, err := openDir(side, temp)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	list, err := names(below)
	if err != nil {
		return err
	}
	for _, child := range list {
		if err := whiteout(fd, child); err != nil {
			return err
		}
	}
	n, err := lookup(below, ".")
	if err != nil {
		return err
	}
	if err := like(fd, n); err != nil {
		return err
	}
	if err := unix.Renameat2(side, temp, s.up, name, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("exchange %s: %w", change.Escape(name), err)
	}
	return removeTree(side, temp)
}

func whiteout(dir int, name string) error {
	if err := unix.Mknodat(dir, name, unix.S_IFCHR, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("mark %s deleted: %w", change.Escape(name), err)
	}
	return nil
}

// clearOpaque turns an opaque directory into a plain one in which every entry of
// the lower that it hid is deleted singly, but not the one named except. So it
// does with those above it. The marks come first: in an opaque directory they
// change nothing.
func (s *step) clearOpaque(except string) error {
	if s.above != nil {
		if err := s.above.clearOpaque(s.name); err != nil {
			return err
		}
	}
	if !s.marked() {
		return nil
	}
	if s.lo >= 0 {
		hidden, err := names(s.lo)
		if err != nil {
			return err
		}
		ours, err := names(s.up)
		if err != nil {
			return err
		}
		for _, name := range hidden {
			if _, found := slices.BinarySearch(ours, name); found {
				err = s.markOpaque(name)
			} else if name != except {
				err = whiteout(s.up, name)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := unix.Fremovexattr(s.up, overlayPrefix+"opaque"); err != nil {
		return fmt.Errorf("clear opaque mark: %w", err)
	}
	return nil
}

// markOpaque marks a directory that was opaque because this one is. What is none
// needs no mark.
func (s *step) markOpaque(name string) error {
	fd, err := openDir(s.up, name)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fsetxattr(fd, overlayPrefix+"opaque", []byte("y"), 0); err != nil {
		return fmt.Errorf("mark %s opaque: %w", change.Escape(name), err)
	}
	return nil
}

// prune removes the directories of the trail that are only copies of the host's
// and hold nothing any more, innermost first. The top stays.
func (t *trail) prune() error {
	for i := len(t.steps) - 1; i > 0; i-- {
		done, err := t.steps[i].drop(t.steps[i-1].up)
		if err != nil || !done {
			return err
		}
	}
	return nil
}

// drop removes the step's directory from its parent when it says nothing.
func (s *step) drop(parent int) (bool, error) {
	if s.lo < 0 || s.opaque() {
		return false, nil
	}
	none, err := empty(s.up)
	if err != nil || !none {
		return false, err
	}
	alike, err := s.alike()
	if err != nil || !alike {
		return false, err
	}
	if err := unix.Unlinkat(parent, s.name, unix.AT_REMOVEDIR); err != nil {
		return false, fmt.Errorf("remove directory %s: %w", change.Escape(s.name), err)
	}
	return true, nil
}

// alike reports that the directory differs from the host's in nothing that a plan
// could hold.
func (s *step) alike() (bool, error) {
	u, err := lookup(s.up, ".")
	if err != nil {
		return false, err
	}
	l, err := lookup(s.lo, ".")
	if err != nil || u == nil || l == nil {
		return false, err
	}
	a, err := u.entry()
	if err != nil {
		return false, err
	}
	b, err := l.entry()
	return a.Same(b), err
}
