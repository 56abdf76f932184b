package execlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// envDir is an environment's directory held open, so that every file is of the
// same environment even when the directory is renamed to a tombstone meanwhile.
type envDir struct {
	path string
	root *os.File
}

func openEnv(dir string) (*envDir, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("open environment: %w", err)
	}
	return &envDir{path: dir, root: f}, nil
}

// Close releases the directory.
func (e *envDir) Close() error { return e.root.Close() }

// open opens one file of the directory by its name.
func (e *envDir) open(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(e.root.Fd()), name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: e.path + "/" + name, Err: err}
	}
	return os.NewFile(uintptr(fd), e.path+"/"+name), nil
}

// present fails with [ErrGone] unless the directory still stands under its name.
func (e *envDir) present() error {
	held, err := e.root.Stat()
	if err != nil {
		return err
	}
	now, err := os.Lstat(e.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(held, now) {
		return ErrGone
	}
	return err
}

// flock is flock(2) that is not ended by a signal.
func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
