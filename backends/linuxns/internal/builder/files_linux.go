package builder

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// fileOf returns a detached bind of one file on a filesystem that is not
// attached anywhere: a clone of a detached mount needs Linux 6.15, so it is
// attached in the scratch space of the thread for a moment.
func (b *build) fileOf(t int, name string, attrs uint64) (int, error) {
	if err := unix.Mkdirat(b.scratch, "f", 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, err
	}
	place, err := mounts.Place(b.scratch, "f", false)
	if err != nil {
		return -1, err
	}
	defer unix.Close(place)
	if err := unix.MoveMount(t, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return -1, fmt.Errorf("attach files: %w", err)
	}
	c, err := mounts.Clone(t, name, false)
	if err != nil {
		return -1, err
	}
	if err := mounts.Set(c, attrs); err != nil {
		unix.Close(c)
		return -1, err
	}
	return c, nil
}
