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

// open opens one file of the directory by its name. Anything but a regular file
// is refused, and none is waited for: a FIFO would be until it is written to.
func (e *envDir) open(name string, flags int) (*os.File, error) {
	fail := func(err error) (*os.File, error) {
		return nil, &fs.PathError{Op: "open", Path: e.path + "/" + name, Err: err}
	}
	fd, err := unix.Openat(int(e.root.Fd()), name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ELOOP) { // a FIFO that nobody reads, a link
		return fail(errIrregular)
	}
	if err != nil {
		return fail(err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errIrregular
	}
	if err == nil {
		err = unix.SetNonblock(fd, false) // or the runtime makes a poller for it
	}
	if err != nil {
		unix.Close(fd)
		return fail(err)
	}
	return os.NewFile(uintptr(fd), e.path+"/"+name), nil
}

var errIrregular = errors.New("not a regular file")

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
