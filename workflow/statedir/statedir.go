// Package statedir says whether a state directory may be trusted, and opens
// files in it so that nothing put there can make a command wait.
//
// What lies in the directory decides what a later command of the same user runs
// and what it writes to the host, so the directory must be private to its owner
// and nobody else may be able to put another one in its place. It is a leaf: exec
// asks it on its way into the view.
package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Error says what is wrong with a directory.
type Error struct {
	Dir  string
	What Fault
	// UID is who owns it, for [NotOurs]; Mode its permission bits, for [Open];
	// Parent the directory above it, for [Below].
	UID    uint32
	Mode   uint32
	Parent string
}

// Fault is a kind of distrust.
type Fault string

// The faults.
const (
	NotOurs Fault = "owned by another user"
	NotDir  Fault = "no directory"
	Open    Fault = "others can look into it"
	Below   Fault = "others can put another directory in its place"
)

func (e *Error) Error() string {
	switch e.What {
	case NotOurs:
		return fmt.Sprintf("state directory %s is owned by uid %d, not by uid %d", e.Dir, e.UID, os.Geteuid())
	case NotDir:
		return fmt.Sprintf("state directory %s is not a directory", e.Dir)
	case Open:
		return fmt.Sprintf("state directory %s has mode %04o; it holds copies of credentials", e.Dir, e.Mode)
	}
	return fmt.Sprintf("state directory %s lies below %s, which others can write to", e.Dir, e.Parent)
}

// Trust checks an existing state directory and every parent of it, and returns
// its real path. It answers with an [Error] or with what kept it from looking.
func Trust(dir string) (real string, err error) {
	if real, err = filepath.EvalSymlinks(dir); err != nil {
		return "", fmt.Errorf("resolve state directory: %w", err)
	}
	uid := uint32(os.Geteuid())
	st, err := lstat(real)
	switch {
	case err != nil:
		return real, err
	case st.Uid != uid:
		return real, &Error{Dir: dir, What: NotOurs, UID: st.Uid}
	case st.Mode&syscall.S_IFMT != syscall.S_IFDIR:
		return real, &Error{Dir: dir, What: NotDir}
	case st.Mode&0o077 != 0:
		return real, &Error{Dir: dir, What: Open, Mode: uint32(st.Mode) & 0o7777} //nolint:unconvert // 16 bits on darwin
	}
	for p := filepath.Dir(real); ; p = filepath.Dir(p) {
		st, err := lstat(p)
		if err != nil {
			return real, err
		}
		// In a sticky directory nobody but the owner can rename our entry.
		writable := st.Mode&0o022 != 0 && st.Mode&syscall.S_ISVTX == 0
		if st.Uid != 0 && st.Uid != uid || writable {
			return real, &Error{Dir: dir, What: Below, Parent: p}
		}
		if p == filepath.Dir(p) {
			return real, nil
		}
	}
}

func lstat(path string) (*syscall.Stat_t, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("inspect state directory: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("inspect state directory: %w", errors.ErrUnsupported)
	}
	return st, nil
}

// ErrIrregular: a file of the state directory is a FIFO, a device, a directory
// or a link. We make none of those there.
var ErrIrregular = errors.New("not a regular file")

// OpenFile opens a regular file of the state directory. Opening a FIFO waits for
// whoever has its other end, and opening a device may do anything; both are
// refused instead, and so is a symbolic link.
func OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, perm)
	switch {
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO): // a link; a FIFO without a reader, a socket
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrIrregular}
	case err != nil:
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrIrregular}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadFile reads a regular file of the state directory whole.
func ReadFile(name string) ([]byte, error) {
	f, err := OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
