package hostfiles

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// places returns the hidden directories of a transaction, sorted.
func places(steps []backends.Step) []change.Path {
	var dirs []change.Path
	for _, s := range steps {
		if s.Place.Dir != "" {
			dirs = append(dirs, s.Place.Dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// makePlaces makes the hidden directories. One that is there was begun by a
// Stage that died; nothing of it was ever swapped, so it starts again.
func (t *tree) makePlaces(steps []backends.Step) error {
	for _, d := range places(steps) {
		err := durable("mkdir "+string(d), func() error {
			up, base, err := t.parent(d)
			if err != nil {
				return err
			}
			mode := placeMode()
			return quietly(up, func() error {
				err := unix.Mkdirat(up, base, mode)
				if err == unix.EEXIST {
					if err = removeAll(up, base); err == nil {
						err = unix.Mkdirat(up, base, mode)
					}
				}
				if err != nil {
					return &os.PathError{Op: "mkdir", Path: d.String(), Err: err}
				}
				return seal(up, base)
			})
		})
		if err != nil {
			return err
		}
		if _, err := t.place(d); err != nil {
			return err
		}
	}
	return nil
}

// placeMode is the mode of a hidden directory. Root needs no permission bits to
// use it, and nobody else gets any; an ordinary owner needs them.
func placeMode() uint32 {
	if os.Geteuid() == 0 {
		return 0
	}
	return 0o700
}

// ensurePlace makes a hidden directory unless it is there.
func (t *tree) ensurePlace(d change.Path) error {
	up, base, err := t.parent(d)
	if err != nil {
		return err
	}
	return quietly(up, func() error {
		if err := unix.Mkdirat(up, base, placeMode()); err != nil && err != unix.EEXIST {
			return &os.PathError{Op: "mkdir", Path: d.String(), Err: err}
		}
		return seal(up, base)
	})
}

// nobodyInAView is the first user id that no view has.
const nobodyInAView = 1<<31 - 1

// seal keeps everybody but the host's root out of a hidden directory: what lies in
// it may be the original of a file that views hide. The root of a view may enter
// what belongs to anybody whom the view knows, whatever the mode, and nothing
// else (capable_wrt_inode_uidgid in the kernel's fs/namei.c). Where an owner cannot be
// set, and where we are ourselves in such a namespace, it stays as it is.
func seal(up int, base string) error {
	if err := plain(up, base); err != nil || os.Geteuid() != 0 {
		return err
	}
	err := unix.Fchownat(up, base, nobodyInAView, nobodyInAView, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.EINVAL || err == unix.EPERM || err == unix.EOPNOTSUPP {
		return nil
	}
	return os.NewSyscallError("fchownat", err)
}
