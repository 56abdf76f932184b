package hostfiles

import (
	"errors"
	"os"

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
		if s.Place.Within != "" {
			continue
		}
		d := touched(*s)
		mtime, ok := planned[d]
		switch {
		case ok:
			s.Place.DirAfter = mtime
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
// that watches the directory — unless swap or undo died half-way: then the time
// is their rename's, and it is restored with the next step that is taken back
// there.
func (u *undoer) judge() error {
	u.dates = map[change.Path]date{}
	halfway, known := false, false
	for _, s := range u.steps {
		d := touched(s)
		if _, seen := u.dates[d]; seen || s.Place.Within != "" {
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
		if !known {
			if halfway, err = u.halfway(); err != nil {
				return err
			}
			known = true
		}
		if halfway {
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

// halfway reports that the swap did not come to its end, or that an undo began.
func (u *undoer) halfway() (bool, error) {
	for _, s := range u.steps {
		if s.Place.Within != "" {
			continue
		}
		if done, err := u.done(s); err != nil || !done {
			return true, err
		}
	}
	// A swap may have died between its last rename and the time after it.
	for _, d := range places(u.steps) {
		n, err := u.dirNode(d)
		if err != nil || n != nil && n.mode&unix.S_ISVTX == 0 {
			return true, err
		}
	}
	return false, nil
}

// markSwapped says on every hidden directory that the whole swap was done. The
// sticky bit has no other meaning there, takes no space, and stays when entries
// come and go.
func (t *tree) markSwapped(steps []backends.Step) error {
	for _, d := range places(steps) {
		fd, err := t.place(d)
		if err != nil {
			return err
		}
		err = durable("mark "+string(d), func() error {
			return os.NewSyscallError("fchmod", unix.Fchmod(fd, placeMode()|unix.S_ISVTX))
		})
		if err != nil {
			return err
		}
	}
	return nil
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
			errs = append(errs, err, ownTime(fd, date.mtime))
		}
		unix.Close(fd)
	}
	return errors.Join(errs...)
}
