package plan

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// flush makes a whole tree durable with one call, however many files it has.
// syncfs(2) reports earlier write errors since Linux 5.8.
func flush(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd())))
}

// reflink makes dst share the extents of src.
func reflink(dst, src *os.File) error { return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) }

// nextData returns the next stretch of data from an offset on. At the end of the
// file it is empty; where the filesystem does not say, it is all that is left.
func nextData(f *os.File, off, size int64) (start, end int64, err error) {
	start, err = unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL):
		return off, size, nil
	case err != nil:
		return 0, 0, os.NewSyscallError("lseek", err)
	case start >= size:
		return size, size, nil
	}
	end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
	return start, min(end, size), os.NewSyscallError("lseek", err)
}
