package hostfiles

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// foresee records the time that the swap will leave on each directory it
// touches: the wanted one where the plan has one, else now, so that whoever
// watches the directory sees it change.
func foresee(steps []backends.Step, now int64) {
	planned := map[change.Path]int64{}
	for _, s := range steps {
		if actOf(s.Change) == actInPlace {
			planned[s.Change.Path] = s.Change.New.MTime
		}
	}
	for i := range steps {
		s := &steps[i]
		if s.Place.DirBefore == 0 {
			continue
		}
		d := touched(*s)
		switch {
		case planned[d] != 0:
			s.Place.DirAfter = planned[d]
		case actOf(s.Change) == actInPlace:
			s.Place.DirAfter = s.Place.DirBefore
		default:
			s.Place.DirAfter = now
		}
	}
}

// touched is the directory whose modification time a step changes.
func touched(s backends.Step) change.Path {
	if actOf(s.Change) == actInPlace {
		return s.Change.Path
	}
	d, _ := split(s.Change.Path)
	return d
}

// judge decides, before anything is taken back, which directories get their old
// modification time again: those that hold the old time or the swap's. Any other
// time is somebody else's doing, whom restoring it could hide from a program
// that watches the directory — unless a step was not done: then swap or undo
// died half-way, the time is their rename's, and it is restored with the next
// step that is taken back there.
func (u *undoer) judge() error {
	u.dates = map[change.Path]date{}
	halfway := -1 // not known yet
	for _, s := range u.steps {
		d := touched(s)
		if _, seen := u.dates[d]; seen || s.Place.DirBefore == 0 || s.Place.Within != "" {
			continue
		}
		n, err := u.dirNode(d)
		if err != nil {
			return err
		}
		if n == nil {
			continue
		}
		if n.mtime == s.Place.DirBefore || n.mtime == s.Place.DirAfter {
			u.dates[d] = date{s.Place.DirBefore, true}
			continue
		}
		if halfway < 0 {
			if halfway, err = u.undone(); err != nil {
				return err
			}
		}
		if halfway > 0 {
			u.dates[d] = date{s.Place.DirBefore, false}
		}
	}
	return nil
}

// date is the time that a directory gets back.
type date struct {
	mtime int64
	sure  bool // nobody else touched it; else only a step taken back there says so
}

// redated restores, after a step was taken back, its directory's time.
func (u *undoer) redated(dir int, s backends.Step) error {
	if d, ok := u.dates[touched(s)]; ok && s.Place.Within == "" {
		return ownTime(dir, d.mtime)
	}
	return nil
}

func (u *undoer) dirNode(d change.Path) (*node, error) {
	fd, err := u.open(d, unix.O_PATH|unix.O_DIRECTORY)
	if absent(err) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return stat(fd, "")
}

// undone counts the steps that are not, or no longer, done.
func (u *undoer) undone() (int, error) {
	k := 0
	for _, s := range u.steps {
		if s.Place.Within != "" {
			continue
		}
		done, err := u.done(s)
		if err != nil {
			return 0, err
		}
		if !done {
			k++
		}
	}
	return k, nil
}

func (u *undoer) done(s backends.Step) (bool, error) {
	if actOf(s.Change) == actInPlace {
		return u.doneInPlace(s)
	}
	p, err := u.look(s)
	if err != nil {
		return false, err
	}
	if s.Change.New == nil {
		return p.slot != nil, nil
	}
	// Whatever became of the target: the swap was done if ours left the slot and
	// the original, if there was one, is in it.
	if p.slot != nil && s.Place.Staged != nil && p.slot.ino == s.Place.Staged.Ino {
		return false, nil
	}
	return s.Change.Old == nil || p.slot != nil, nil
}

// redate restores the times of the directories that are surely ours.
func (u *undoer) redate() error {
	var errs []error
	for d, date := range u.dates {
		if !date.sure {
			continue
		}
		fd, err := u.open(d, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			if !absent(err) && !errors.Is(err, unix.ELOOP) {
				errs = append(errs, err)
			}
			continue
		}
		if n, err := stat(fd, ""); err != nil || n.mtime != date.mtime {
			u.did = true
			errs = append(errs, err, ownTime(fd, date.mtime))
		}
		unix.Close(fd)
	}
	return errors.Join(errs...)
}
