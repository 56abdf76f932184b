// Package regular opens the files of an environment's directory, which are
// regular ones. Opening a FIFO waits for whoever has its other end, for ever
// when nobody has, and opening a device may do anything; whatever else was put
// there is refused instead. It is a leaf.
package regular

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrIrregular: it is a FIFO, a device, a directory or a link.
var ErrIrregular = errors.New("not a regular file")

// Open opens a regular file and follows no symbolic link to it.
func Open(name string, flag int, perm fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, perm)
	switch {
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO): // a link; a FIFO that nobody reads, a socket
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

// Read reads a regular file whole.
func Read(name string) ([]byte, error) {
	f, err := Open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
