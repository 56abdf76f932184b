package execlog

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const lockFile = "lock"

// Mode is how an environment is locked.
type Mode int

// The modes. Shared is for what adds to the layer, exclusive for what needs it
// to hold still.
const (
	Shared    Mode = unix.LOCK_SH
	Exclusive Mode = unix.LOCK_EX
)

// Lock is an environment's lock, held until it is closed or the process ends.
type Lock struct{ f *os.File }

// EnvLock takes the lock of an environment. Without wait it answers [ErrBusy],
// naming who has it; with wait it blocks until it is free. A directory that was
// renamed away before the lock was had is [ErrGone].
func EnvLock(dir string, how Mode, wait bool) (*Lock, error) {
	e, err := openEnv(dir)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	f, err := e.open(lockFile, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	flags := int(how)
	if !wait {
		flags |= unix.LOCK_NB
	}
	err = flock(f, flags)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = &BusyError{Who: holders(f)}
	case err == nil:
		err = e.present()
	default:
		err = fmt.Errorf("lock environment: %w", err)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Lock{f: f}, nil
}

// Close releases the lock.
func (l *Lock) Close() error { return l.f.Close() }
