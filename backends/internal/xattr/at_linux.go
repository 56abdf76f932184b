package xattr

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lacking is set where the kernel has no listxattrat(2), which came with 6.13.
var lacking atomic.Bool

// list names the attributes of name in dir. By way of /proc it costs six times as
// much, and most objects have none, so this is what reading attributes costs.
func list(dir int, name string, buf []byte) (int, error) {
	if !lacking.Load() {
		n, err := listxattrat(dir, name, buf)
		switch err {
		case unix.ENOSYS:
			lacking.Store(true)
		case unix.EPERM: // what an older sandbox answers to a call that it does not know
		default:
			return n, err
		}
	}
	return unix.Llistxattr(Path(dir, name), buf)
}

func listxattrat(dir int, name string, buf []byte) (int, error) {
	if name == "" {
		name = "." // AT_EMPTY_PATH does not take a descriptor that was opened with O_PATH
	}
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return 0, err
	}
	n, _, errno := unix.Syscall6(
		unix.SYS_LISTXATTRAT, uintptr(dir), uintptr(unsafe.Pointer(p)), unix.AT_SYMLINK_NOFOLLOW,
		uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)), 0,
	)
	runtime.KeepAlive(buf)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
