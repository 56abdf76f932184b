//go:build unix

package upper

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock waits for the file's exclusive lock; closing the file gives it back.
func lock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}
