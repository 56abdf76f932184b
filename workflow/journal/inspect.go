package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// applicationID marks the database as ours in its header: "nsbx".
const applicationID = 0x6e736278

// The database header, https://www.sqlite.org/fileformat2.html §1.3.
const (
	headerSize     = 100
	magic          = "SQLite format 3\x00"
	offUserVersion = 60
	offApplication = 68
)

// inspect judges the file before SQLite sees it, because opening alone may
// already write: it rolls a hot journal back and checkpoints a log left behind.
func inspect(path string, version int) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%w: it is a symbolic link", ErrForeign)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%w: it is not a regular file", ErrForeign)
	}
	var h [headerSize]byte
	n, err := io.ReadFull(f, h[:])
	switch {
	case st.Size() == 0:
		// We create the file under another name and rename it, so an empty one is
		// never a creation that was cut short.
		return fmt.Errorf("%w: it is empty", ErrCorrupt)
	case n < headerSize && strings.HasPrefix(magic, string(h[:min(n, len(magic))])):
		return fmt.Errorf("%w: it ends after %d bytes", ErrCorrupt, n)
	case string(h[:len(magic)]) != magic:
		return fmt.Errorf("%w: it is not a database", ErrForeign)
	case n < headerSize:
		return fmt.Errorf("%w: it ends after %d bytes", ErrCorrupt, n)
	case err != nil:
		return err
	}
	if id := binary.BigEndian.Uint32(h[offApplication:]); id != applicationID {
		return fmt.Errorf("%w: it is a database of another application (id %#08x)", ErrForeign, id)
	}
	if v := binary.BigEndian.Uint32(h[offUserVersion:]); int64(v) > int64(version) {
		return fmt.Errorf("%w: it has version %d, this program knows %d", ErrNewer, v, version)
	}
	return nil
}

// logged reports whether a write-ahead log was left behind: the last process
// that had the database open did not close it, or has not yet.
func logged(path string) bool {
	st, err := os.Stat(path + "-wal")
	return err == nil && st.Size() > 0
}

// writable tells whether this process may change the journal. Mode bits do not
// bind root, but a journal that somebody made read-only on purpose is to be
// left alone by root as well.
func writable(dir, path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Mode().Perm()&0o200 == 0 {
		return fmt.Errorf("%w: its mode is %#o", ErrReadOnly, st.Mode().Perm())
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case err != nil:
		return err
	}
	f.Close()
	// The log is made beside the database.
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%w: directory %s: %w", ErrReadOnly, dir, err)
	}
	return nil
}
