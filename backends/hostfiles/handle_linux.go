package hostfiles

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// handle returns what the filesystem calls the object at p by itself, which
// finds it again under any of its names; nil where there is no such thing.
func (t *tree) handle(p change.Path) ([]byte, error) {
	dir, base, err := t.parent(p)
	if err != nil {
		return nil, err
	}
	h, _, err := unix.NameToHandleAt(dir, base, 0)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EOVERFLOW):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("name_to_handle_at: %w", err)
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(h.Type())), h.Bytes()...), nil
}

// survivor opens the original of a step if the inode still exists under another
// name than the one that is missing, else -1. It knows for certain only where
// the filesystem has handles and we may use them.
func (t *tree) survivor(s backends.Step, mount int) (fd int, certain bool, err error) {
	b := s.Place.Handle
	if len(b) < 4 || s.Change.Old == nil {
		return -1, false, nil
	}
	h := unix.NewFileHandle(int32(binary.LittleEndian.Uint32(b)), b[4:])
	fd, err = unix.OpenByHandleAt(mount, h, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	switch {
	case errors.Is(err, unix.ESTALE), errors.Is(err, unix.ENOENT):
		return -1, true, nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EOPNOTSUPP):
		return -1, false, nil
	case err != nil:
		return -1, false, fmt.Errorf("open_by_handle_at: %w", err)
	}
	n, err := stat(fd, "")
	if err != nil || n.nlink == 0 || n.ino != s.Change.Old.ID.Ino {
		unix.Close(fd)
		return -1, true, err
	}
	return fd, true, nil
}

// apart names what came back as a copy although the inode that it was lives on
// under other names: they are one file no more.
func (u *undoer) apart() error {
	for _, s := range u.steps {
		if _, several := group(s); !several || actOf(s.Change) == actInPlace {
			continue
		}
		if err := u.apartOne(s); err != nil {
			return fmt.Errorf("undo %s: %w", s.Change.Path, err)
		}
	}
	return nil
}

func (u *undoer) apartOne(s backends.Step) error {
	dir, base, err := u.parent(s.Change.Path)
	if absent(err) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	old := s.Change.Old
	n, err := statOrNil(dir, base)
	if n == nil || err != nil || n.ino == old.ID.Ino || n.nlink >= old.Links || !alike(n, old) || n.is(s.Place.Staged, n.dev) {
		return err
	}
	fd, err := openBelow(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	other, certain, err := u.survivor(s, fd)
	if err != nil || other < 0 && certain {
		return err // no other name is left
	}
	if other >= 0 {
		unix.Close(other)
	}
	up, _ := split(s.Place.Dir)
	u.leave(s, fmt.Sprintf("a copy of it: the other names that it had stayed with inode %d", old.ID.Ino),
		fmt.Sprintf("find %s -xdev -inum %d (to link it to one of them again: ln -f -- OTHER %s)", quote(up), old.ID.Ino, quote(s.Change.Path)))
	return nil
}
