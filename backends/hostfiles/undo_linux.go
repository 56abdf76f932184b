package hostfiles

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Undo implements [backends.Host]. It ignores cancellation: what has begun to
// go back goes back, and one step that cannot does not keep the others.
func (h *Host) Undo(_ context.Context, steps []backends.Step) ([]backends.Leftover, error) {
	t, err := openTree(h.root)
	if err != nil {
		return nil, err
	}
	defer t.close()
	u := &undoer{tree: t, steps: steps}
	if err := u.judge(); err != nil {
		return nil, fmt.Errorf("undo: %w", err)
	}
	u.readAhead()
	var errs []error
	for _, s := range slices.Backward(steps) {
		if err := u.undo(s); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", s.Change.Path, err))
		}
	}
	errs = append(errs, u.redate(), u.apart(), u.carriedBack(), t.flushSwapped(steps, u.did < u.duties()))
	return u.left, errors.Join(errs...)
}

// undoer takes the steps of one transaction back.
type undoer struct {
	*tree
	steps []backends.Step
	dates map[change.Path]date
	ahead map[change.Path]content
	left  []backends.Leftover
	did   int // steps that were taken back by this try
}

// duties counts the steps that an undo of a whole swap takes back. When fewer
// needed it, an earlier try may have done the others and failed to make them
// durable, of which nobody is told twice.
func (u *undoer) duties() (n int) {
	for _, s := range u.steps {
		if s.Change.New != nil || s.Place.Within == "" {
			n++
		}
	}
	return n
}

// take is the part of an undo that changes the host.
func (u *undoer) take(s backends.Step, f func() error) error {
	u.did++
	return durable("undo "+string(s.Change.Path), f)
}

func (u *undoer) leave(s backends.Step, found, fix string) {
	u.left = append(u.left, backends.Leftover{
		Subject: s.Change.Path.String(), Found: found, Wanted: describe(s.Change.Old), Fix: fix,
	})
}

// spot is one step's target and slot as they are now.
type spot struct {
	dir    int // the target's parent
	base   string
	hidden int   // -1 when the hidden directory is gone
	at     *node // the target
	slot   *node // the entry in the hidden directory
	dev    uint64
	lost   string // why the parent is not the recorded one
}

func (u *undoer) look(s backends.Step) (*spot, error) {
	p := &spot{hidden: -1}
	hidden, err := u.place(s.Place.Dir)
	switch {
	case err == nil:
		p.hidden = hidden
		if p.slot, err = statOrNil(hidden, s.Place.Name); err != nil {
			return nil, err
		}
	case !absent(err):
		return nil, err
	}
	dir, base, err := u.parent(s.Change.Path)
	switch {
	case err == nil:
	case absent(err):
		p.lost = "no directory is above it any more"
		return p, nil
	case errors.Is(err, unix.ELOOP):
		p.lost = "a directory above it became a symlink"
		return p, nil
	default:
		return nil, err
	}
	up, err := u.above(dir)
	if err != nil {
		return nil, err
	}
	p.dev = up.dev
	if s.Place.Parent == nil || up.ino != s.Place.Parent.Ino {
		p.lost = "the directory above it is another one"
	}
	p.dir, p.base = dir, base
	p.at, err = statOrNil(dir, base)
	return p, err
}

func (u *undoer) undo(s backends.Step) error {
	if actOf(s.Change) == actInPlace {
		return u.undoInPlace(s)
	}
	if s.Change.New == nil && s.Place.Within != "" {
		return nil // comes back with its carrier
	}
	if s.Change.New != nil && s.Place.Staged == nil {
		return nil // not even made
	}
	p, err := u.look(s)
	if err != nil {
		return err
	}
	if s.Place.Staged != nil && p.slot != nil && p.slot.ino == s.Place.Staged.Ino {
		return nil // not swapped, or taken back already
	}
	switch actOf(s.Change) {
	case actPlace:
		return u.undoPlaced(s, p)
	case actTake:
		return u.undoTaken(s, p)
	}
	return u.undoExchanged(s, p)
}

func (u *undoer) undoExchanged(s backends.Step, p *spot) error {
	back := backup(s)
	switch {
	case p.at.is(s.Place.Original, p.dev):
		return nil
	case p.lost != "" && !p.at.is(s.Place.Staged, p.dev):
		u.leave(s, p.lost, homeless(s))
		return nil
	case p.at == nil:
		u.leave(s, "it was removed", putBack(s))
		return nil
	}
	why, err := u.foreign(p.dir, p.base, p.at, s, p.dev)
	if err != nil {
		return err
	}
	switch {
	case why != "":
		u.leave(s, why, putBack(s))
		return nil
	case p.slot == nil:
		u.leave(s, "the original is no longer at "+back.String(), "restore it from a backup")
		return nil
	}
	return u.take(s, func() error {
		swap := func() error {
			return renameat2(p.hidden, s.Place.Name, p.dir, p.base, unix.RENAME_EXCHANGE)
		}
		if err := swap(); err != nil {
			return err
		}
		why, err := u.caught(p, s)
		if err != nil {
			return err
		}
		if why != "" {
			u.leave(s, why, putBack(s))
			return swap()
		}
		if !p.at.is(s.Place.Staged, p.dev) {
			// Equal to the original that is back, and no file of ours, so Clean would
			// leave it.
			if err := unix.Unlinkat(p.hidden, s.Place.Name, 0); err != nil {
				return err
			}
		}
		return errors.Join(retime(p.dir, p.base, s.Change.Old), u.redated(p.dir, s))
	})
}

// caught looks at what an undo brought into the slot: whoever changed it between
// the look and the rename gets it back.
func (u *undoer) caught(p *spot, s backends.Step) (string, error) {
	n, err := stat(p.hidden, s.Place.Name)
	if err != nil {
		return "", err
	}
	written := n.ino != p.at.ino
	switch n.fmt {
	case unix.S_IFIFO: // whose time is that of the last write
	case unix.S_IFDIR:
		if !written {
			return holds(p.hidden, s.Place.Name)
		}
	default:
		written = written || n.size != p.at.size || n.mtime != p.at.mtime
	}
	if written {
		return "it was written while it was taken back", nil
	}
	return "", nil
}

func (u *undoer) undoPlaced(s backends.Step, p *spot) error {
	if p.lost != "" && !p.at.is(s.Place.Staged, p.dev) {
		if s.Place.Within == "" {
			u.leave(s, p.lost, "look for what was made there and remove it")
		}
		return nil // a carried step's directory is not there, or not ours
	}
	if p.at == nil {
		return nil
	}
	why, err := u.foreign(p.dir, p.base, p.at, s, p.dev)
	if err != nil {
		return err
	}
	if why != "" {
		u.leave(s, why, "keep it, or: rm -ri -- "+quote(s.Change.Path))
		return nil
	}
	return u.take(s, func() error {
		return errors.Join(u.remove(s, p), u.redated(p.dir, s))
	})
}

// remove takes an object that we made away. A file goes to the hidden directory
// and is looked at there, so that a write which came in between is not lost.
func (u *undoer) remove(s backends.Step, p *spot) error {
	if p.at.fmt == unix.S_IFDIR {
		err := unix.Unlinkat(p.dir, p.base, unix.AT_REMOVEDIR)
		if err == unix.ENOTEMPTY || err == unix.EEXIST {
			u.leave(s, "it holds entries of somebody else's", "keep it, or: rm -ri -- "+quote(s.Change.Path))
			return nil
		}
		return err
	}
	err := errors.ErrUnsupported
	if p.hidden >= 0 {
		err = renameat2(p.dir, p.base, p.hidden, s.Place.Name, unix.RENAME_NOREPLACE)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, errors.ErrUnsupported) {
		// No room even for a name, or no hidden directory any more; an undo needs
		// neither.
		return unix.Unlinkat(p.dir, p.base, 0)
	}
	if err != nil {
		return err
	}
	why, err := u.caught(p, s)
	if why == "" || err != nil {
		return err
	}
	u.leave(s, why, "keep it, or: rm -i -- "+quote(s.Change.Path))
	return renameat2(p.hidden, s.Place.Name, p.dir, p.base, unix.RENAME_NOREPLACE)
}

func (u *undoer) undoTaken(s backends.Step, p *spot) error {
	switch {
	case p.slot == nil && p.at == nil && p.lost == "":
		u.leave(s, "neither it nor the original at "+backup(s).String(), "restore it from a backup")
		return nil
	case p.slot == nil:
		return nil // never taken, or back already
	case p.lost != "":
		u.leave(s, p.lost, homeless(s))
		return nil
	case p.at != nil:
		u.leave(s, "something new stands there", putBack(s))
		return nil
	}
	return u.take(s, func() error {
		err := renameat2(p.hidden, s.Place.Name, p.dir, p.base, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			u.leave(s, "something new stands there", putBack(s))
			return nil
		}
		return errors.Join(err, u.redated(p.dir, s))
	})
}

// foreign says why the object at the target is not the one we put there, or
// nothing. Its inode number alone does not tell: a filesystem gives the number
// of a removed file to the next one. Nor is it foreign if somebody wrote the
// original's content there again: nobody loses that when the original itself
// comes back in its place.
func (u *undoer) foreign(dir int, base string, at *node, s backends.Step, dev uint64) (string, error) {
	old, want, kind := s.Change.Old, s.Change.New, at.kind()
	ours := at.is(s.Place.Staged, dev) && kind == want.Type
	if old != nil && old.Type != kind {
		old = nil
	}
	switch {
	case kind == change.Symlink && (ours || old != nil):
		target, err := readlink(dir, base)
		if err != nil || old != nil && target == string(old.Target) || ours && target == string(want.Target) {
			return "", err
		}
		return "a symlink to " + change.Escape(target), nil
	case kind == change.Regular && (ours || old != nil && old.Size == at.size):
		after, sum, err := u.content(dir, base, at, s.Change.Path)
		if err != nil {
			return "", err
		}
		if after.ino == at.ino && (ours && sum == want.SHA256 || old != nil && sum == old.SHA256) {
			*at = *after // what caught compares with
			return "", nil
		}
		if ours {
			return "its content was changed since", nil
		}
	case kind == change.Directory && ours && s.Change.Old != nil:
		return holds(dir, base) // else rmdir decides
	}
	if !ours {
		return fmt.Sprintf("another %s stands there", kind), nil
	}
	return "", nil
}

// holds says that a directory is not empty.
func holds(dir int, name string) (string, error) {
	list, err := names(dir, name)
	if err != nil || len(list) == 0 {
		return "", err
	}
	return "it holds entries of somebody else's", nil
}
