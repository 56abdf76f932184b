package hostfiles

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Clean implements [backends.Host]. With keep, only objects that we made go, and
// a hidden directory that is empty then; without, everything hidden goes, which
// is right before a swap and when a backup is given up.
func (h *Host) Clean(_ context.Context, steps []backends.Step, keep bool) error {
	t, err := openTree(h.root)
	if err != nil {
		return err
	}
	defer t.close()
	var errs []error
	for _, d := range places(steps) {
		if err := t.clean(d, steps, keep); err != nil {
			errs = append(errs, fmt.Errorf("clean %s: %w", d, err))
		}
	}
	return errors.Join(errs...)
}

func (t *tree) clean(d change.Path, steps []backends.Step, keep bool) error {
	up, base, err := t.parent(d)
	if err != nil {
		if absent(err) {
			return nil
		}
		return err
	}
	top, _ := split(d)
	n, err := statOrNil(up, base)
	if err != nil {
		return err
	}
	if n == nil {
		// Perhaps an earlier try removed it and could not make that durable; what it
		// was told is told once.
		err := t.flushPlace(d)
		if !keep && errors.Is(err, unix.EROFS) {
			return nil // or nobody could make it
		}
		return err
	}
	if keep {
		if err := t.cleanMade(d, steps); err != nil {
			return err
		}
	}
	err = durable("remove "+string(d), func() error {
		return quietly(up, func() error {
			if !keep {
				return removeAll(up, base)
			}
			err := unix.Unlinkat(up, base, unix.AT_REMOVEDIR)
			if err == unix.ENOTEMPTY || err == unix.EEXIST || err == unix.ENOENT {
				return nil
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	return t.fsyncDir(top)
}

// cleanMade removes from a hidden directory what Stage made and undo brought
// back, known by inode number.
func (t *tree) cleanMade(d change.Path, steps []backends.Step) error {
	hidden, err := t.place(d)
	if err != nil {
		return err
	}
	// What takes the time is giving an inode's blocks back, which happens when the
	// directory's lock is free again.
	return spread(len(steps), func(lo, hi int) error {
		for _, s := range steps[lo:hi] {
			if s.Place.Dir != d || s.Place.Staged == nil {
				continue
			}
			if err := removeStaged(hidden, s.Place); err != nil {
				return err
			}
		}
		return nil
	})
}

func removeStaged(hidden int, p backends.Place) error {
	n, err := statOrNil(hidden, p.Name)
	if err != nil || n == nil || n.ino != p.Staged.Ino {
		return err
	}
	return durable("remove staged", func() error { return removeAll(hidden, p.Name) })
}
