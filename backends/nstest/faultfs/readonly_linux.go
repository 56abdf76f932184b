package faultfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ReadOnly makes the filesystem read-only. The kernel refuses that while a file
// is open for writing; ext4 is then told to abort its journal, which is how a
// host finds it after an error: read-only whoever writes, until [FS.Remount].
func (f *FS) ReadOnly() {
	f.t.Helper()
	f.must("make read-only", f.readOnly())
}

func (f *FS) readOnly() error {
	err := unix.Mount("", f.Dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	if !errors.Is(err, unix.EBUSY) || f.Kind.Name != Ext4.Name {
		return err
	}
	// With the journal gone there is nothing to write back: the remount itself
	// fails or not, the filesystem is read-only after it.
	err = unix.Mount("", f.Dir, "", unix.MS_REMOUNT, "abort")
	if probe := unix.Mknod(f.Dir+"/"+ballast, unix.S_IFREG|0o600, 0); !errors.Is(probe, unix.EROFS) && !errors.Is(probe, unix.EIO) {
		return fmt.Errorf("a file can be made after the abort: %w", errors.Join(probe, err))
	}
	return nil
}
