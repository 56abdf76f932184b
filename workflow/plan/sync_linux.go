package plan

import (
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
