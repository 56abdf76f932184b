package hostfiles

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
)

// carriedBack names what did not come back with the directory that had taken it
// along: somebody removed it while it was out of its place.
func (u *undoer) carriedBack() error {
	for _, s := range u.steps {
		if s.Place.Within == "" || s.Change.New != nil || s.Place.Parent == nil {
			continue
		}
		if err := u.carriedBackOne(s); err != nil {
			return fmt.Errorf("undo %s: %w", s.Change.Path, err)
		}
	}
	return nil
}

func (u *undoer) carriedBackOne(s backends.Step) error {
	dir, base, err := u.parent(s.Change.Path)
	if absent(err) || errors.Is(err, unix.ELOOP) {
		return nil // its directory is named
	}
	if err != nil {
		return err
	}
	up, err := stat(dir, "")
	if err != nil || up.ino != s.Place.Parent.Ino {
		return err // not back, or made anew from the second copy with all that was in it
	}
	n, err := statOrNil(dir, base)
	if n == nil && err == nil {
		u.leave(s, "it was removed from where its directory was kept", "restore it from a backup")
	}
	return err
}

// restorable reports that a missing original can be made anew: what its own
// directory has taken along comes from the second copy only when that is missing
// as a whole.
func restorable(hidden int, s backends.Step) (bool, error) {
	if s.Place.Within == "" || hidden < 0 {
		return true, nil
	}
	carrier, err := statOrNil(hidden, s.Place.Within)
	return carrier == nil, err
}
