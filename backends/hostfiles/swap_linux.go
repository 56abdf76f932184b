package hostfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// Swap implements [backends.Host]. Each entry is one atomic rename; what it
// brought into the hidden directory is looked at afterwards, so that a change
// made by somebody in between is found and, by the undo that follows, put back.
func (h *Host) Swap(ctx context.Context, steps []backends.Step) error {
	t, err := openTree(h.root)
	if err != nil {
		return err
	}
	defer t.close()
	w := &swapper{tree: t, steps: steps, carried: carriedBy(steps)}
	for i, s := range steps {
		if s.Place.Within != "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.swap(s, w.leaves(i)); err != nil {
			return fmt.Errorf("swap %s: %w", s.Change.Path, err)
		}
	}
	if err := t.markSwapped(steps); err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	if err := t.flushSwapped(steps, false); err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	return nil
}

// swapper puts the staged objects of one transaction in place.
type swapper struct {
	*tree
	steps   []backends.Step
	carried map[string]map[change.Path]backends.Step
}

// leaves reports that step i is, for now, the last in its directory.
func (w *swapper) leaves(i int) bool {
	for _, next := range w.steps[i+1:] {
		if next.Place.Within == "" {
			return touched(next) != touched(w.steps[i])
		}
	}
	return true
}

func (w *swapper) swap(s backends.Step, last bool) error {
	if actOf(s.Change) == actInPlace {
		return w.swapInPlace(s)
	}
	dir, base, err := w.parent(s.Change.Path)
	if errors.Is(err, unix.ELOOP) || err != nil && absent(err) {
		return fmt.Errorf("%w: %w", backends.ErrHostChanged, err)
	}
	if err != nil {
		return err
	}
	hidden, err := w.place(s.Place.Dir)
	if err != nil {
		return err
	}
	up, err := w.above(dir)
	if err != nil {
		return err
	}
	if !up.is(s.Place.Parent, up.dev) {
		return fmt.Errorf("%w: its directory is another one", backends.ErrHostChanged)
	}
	at, err := statOrNil(dir, base)
	if err != nil {
		return err
	}
	dev := up.dev
	if done, err := swapped(s, at, hidden, dev); done || err != nil {
		return err
	}
	if same, err := original(dir, base, at, s, dev); err != nil || !same {
		return errors.Join(err, backends.ErrHostChanged)
	}
	err = durable("swap "+string(s.Change.Path), func() error { return w.rename(s, dir, base, hidden, dev) })
	if err != nil || !last {
		return err
	}
	// Before the next directory, not once at the end: undo takes a third time for
	// somebody else's only when the whole swap was done.
	return durable("date "+string(touched(s)), func() error { return ownTime(dir, s.Place.DirAfter) })
}

// swapped reports that an earlier run did this step.
func swapped(s backends.Step, at *node, hidden int, dev uint64) (bool, error) {
	if s.Change.New != nil {
		return at.is(s.Place.Staged, dev), nil
	}
	slot, err := statOrNil(hidden, s.Place.Name)
	return at == nil && slot.is(s.Place.Original, dev), err
}

// original reports that the target is still what the snapshot saw. The change
// time tells all, but for a hard link, where exchanging another of its names
// moves it, and for a fifo, where every write does.
func original(dir int, base string, at *node, s backends.Step, dev uint64) (bool, error) {
	old := s.Change.Old
	switch {
	case old == nil || at == nil:
		return old == nil && at == nil, nil
	case !at.is(s.Place.Original, dev):
		return false, nil
	case at.ctime == s.Place.Original.CTime:
		return true, nil
	case at.nlink < 2 && at.kind() != change.Fifo || !alike(at, old):
		return false, nil
	}
	now, err := xattr.Planned(dir, base)
	return maps.EqualFunc(now, old.Xattrs, bytes.Equal), err
}

// alike compares everything that tells content and metadata without reading. A
// fifo has no content, and its time is that of the last write.
func alike(at *node, e *change.Entry) bool {
	return at.kind() == e.Type && at.mode == e.Mode && at.uid == e.UID && at.gid == e.GID &&
		(at.mtime == e.MTime || e.Type == change.Fifo) && (e.Type != change.Regular || at.size == e.Size)
}

// rename does the step and proves what it displaced.
func (w *swapper) rename(s backends.Step, dir int, base string, hidden int, dev uint64) error {
	var err error
	switch actOf(s.Change) {
	case actPlace:
		err = renameat2(hidden, s.Place.Name, dir, base, unix.RENAME_NOREPLACE)
	case actTake:
		err = renameat2(dir, base, hidden, s.Place.Name, unix.RENAME_NOREPLACE)
	default:
		err = renameat2(hidden, s.Place.Name, dir, base, unix.RENAME_EXCHANGE)
	}
	switch {
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: %w", backends.ErrHostChanged, err)
	case err != nil:
		return err
	case s.Change.Old == nil:
		return nil
	}
	slot, err := stat(hidden, s.Place.Name)
	if err != nil {
		return err
	}
	if s.Change.Old.Type == change.Directory {
		slot.mtime = s.Change.Old.MTime // an exchange may move it, and complete looks closer
	}
	if !slot.is(s.Place.Original, dev) || !alike(slot, s.Change.Old) {
		return fmt.Errorf("%w: it was replaced or written meanwhile", backends.ErrHostChanged)
	}
	if s.Change.Old.Type == change.Directory {
		if err := complete(hidden, s.Place.Name, s.Change.Path, w.carried[s.Place.Name]); err != nil {
			return err
		}
	}
	if actOf(s.Change) != actExchange {
		return nil
	}
	return errors.Join(retime(dir, base, s.Change.New), retime(hidden, s.Place.Name, s.Change.Old))
}

// retime gives a directory that was exchanged its modification time again: xfs
// counts the new ".." as a change of its content (xfs_cross_rename in
// fs/xfs/xfs_inode.c), though not when it only moves.
func retime(dir int, name string, e *change.Entry) error {
	if e == nil || e.Type != change.Directory {
		return nil
	}
	n, err := stat(dir, name)
	if err != nil || n.fmt != unix.S_IFDIR || n.mtime == e.MTime {
		return err
	}
	if err := setTime(dir, name, e.MTime); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

// carriedBy lists, by the name of each carrying step, the steps that it takes
// along. For all at once: thousands of directories may go in one transaction.
func carriedBy(steps []backends.Step) map[string]map[change.Path]backends.Step {
	all := map[string]map[change.Path]backends.Step{}
	for _, s := range steps {
		name := s.Place.Within
		if name == "" {
			continue
		}
		if all[name] == nil {
			all[name] = map[change.Path]backends.Step{}
		}
		all[name][s.Change.Path] = s
	}
	return all
}

// complete refuses a directory that holds what the plan does not know, or knows
// otherwise: its rename took along whatever was in it by then.
func complete(dir int, name string, p change.Path, known map[change.Path]backends.Step) error {
	fd, err := openBelow(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	list, err := names(fd, "")
	if err != nil {
		return err
	}
	for _, n := range list {
		q := join(p, n)
		s, ok := known[q]
		if !ok {
			return fmt.Errorf("%w: the plan does not know %s", backends.ErrHostChanged, q)
		}
		at, err := stat(fd, n)
		if err != nil {
			return err
		}
		if same, err := original(fd, n, at, s, at.dev); err != nil {
			return err
		} else if !same {
			return fmt.Errorf("%w: %s was replaced or changed meanwhile", backends.ErrHostChanged, q)
		}
		if at.fmt == unix.S_IFDIR {
			if err := complete(fd, n, q, known); err != nil {
				return err
			}
		}
	}
	return nil
}

func renameat2(fromDir int, from string, toDir int, to string, flags uint) error {
	for {
		err := unix.Renameat2(fromDir, from, toDir, to, flags)
		if err == unix.EINTR {
			continue
		}
		return os.NewSyscallError("renameat2", err)
	}
}

// statOrNil is stat, with nil for what is not there.
func statOrNil(dir int, name string) (*node, error) {
	n, err := stat(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return n, err
}
