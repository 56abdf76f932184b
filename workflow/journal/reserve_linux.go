package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// reserveFile holds space for the commands that give space back: on a full disk
// SQLite can make neither its index file nor a log, so not even what would free
// the disk could be looked up. What runs in a view writes to the same filesystem
// as root, past the part that is reserved for root.
const (
	reserveFile = "journal.reserve"
	reserveSize = 1 << 20
)

// makeRoom gives the reserve up when the filesystem is all but full.
func makeRoom(dir string) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Bavail*uint64(st.Bsize) >= reserveSize/2 {
		return
	}
	// Root may go on where others may not. The last of what counts as free is for
	// nobody, though: ext4 keeps up to 16 MiB for itself.
	if os.Geteuid() == 0 && st.Bfree*uint64(st.Bsize) >= 32*reserveSize {
		return
	}
	_ = os.Remove(filepath.Join(dir, reserveFile))
}

// keepRoom makes the reserve where there is plenty of room for it. It is a
// precaution: a filesystem that cannot make one works as before.
func keepRoom(dir string) {
	path := filepath.Join(dir, reserveFile)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Bavail*uint64(st.Bsize) < 16*reserveSize {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, reserveSize)
	if errors.Join(err, f.Close()) != nil {
		_ = os.Remove(path)
	}
}
