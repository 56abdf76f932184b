package txn

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errReadOnly is what opening for writing on a read-only filesystem gives.
const errReadOnly = unix.EROFS

// tryLock takes the flock without waiting.
func tryLock(f *os.File) error {
	err := retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		return ErrBusy
	}
	return os.NewSyscallError("flock", err)
}

func unlock(f *os.File) error {
	return os.NewSyscallError("flock", unix.Flock(int(f.Fd()), unix.LOCK_UN))
}

// preallocate gives a file blocks beyond its end without making it longer.
func preallocate(f *os.File, off, n int64) error {
	err := retry(func() error { return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, n) })
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return errors.ErrUnsupported
	}
	return os.NewSyscallError("fallocate", err)
}

// datasync makes content and length durable, which is all that reading needs.
func datasync(f *os.File) error {
	return os.NewSyscallError("fdatasync", retry(func() error { return unix.Fdatasync(int(f.Fd())) }))
}

func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
