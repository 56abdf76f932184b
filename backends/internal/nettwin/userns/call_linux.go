package userns

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Foreign opens the user namespace that owns the network namespace ns; nil when
// it is the caller's own, and a child has nothing to add.
func Foreign(ns int) (*os.File, error) {
	fd, err := unix.IoctlRetInt(ns, unix.NS_GET_USERNS)
	if err != nil {
		return nil, fmt.Errorf("find owner of network namespace: %w", err)
	}
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "owner")
	var owner, own unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &owner), unix.Stat("/proc/self/ns/user", &own)); err != nil {
		f.Close()
		return nil, fmt.Errorf("compare user namespaces: %w", err)
	}
	if owner.Dev == own.Dev && owner.Ino == own.Ino {
		return nil, f.Close()
	}
	return f, nil
}

// Send writes b to the socket fd in one piece, as root of the user namespace.
func Send(owner *os.File, fd int, b []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&b[0])
	return call(owner, &request{unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0})
}

// Write writes b to the file fd in one piece, as root of the user namespace.
func Write(owner *os.File, fd int, b []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&b[0])
	return call(owner, &request{unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))})
}

// SetOption sets an option of the socket fd, as root of the user namespace.
func SetOption(owner *os.File, fd, level, name int, b []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&b[0])
	return call(owner, &request{unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))})
}

// request is a system call: its number and five arguments. The child's memory is
// a copy of ours, so pointers to pinned memory are good there.
type request [6]uintptr

func call(owner *os.File, req *request) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer r.Close()
	syscall.ForkLock.Lock()
	pid, e := fork(owner.Fd(), w.Fd(), req)
	syscall.ForkLock.Unlock()
	w.Close()
	if e != 0 {
		return fmt.Errorf("fork: %w", e)
	}
	var errno uintptr
	_, err = io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(&errno)), unsafe.Sizeof(errno)))
	for {
		if _, werr := syscall.Wait4(int(pid), nil, 0, nil); werr != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("hear from child: %w", err)
	}
	if errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// fork starts the child. Nothing in it may allocate or grow the stack: no other
// thread of the runtime exists there.
//
//go:noinline
//go:norace
//go:nosplit
func fork(owner, tell uintptr, req *request) (uintptr, syscall.Errno) {
	beforeFork()
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		afterFork()
		return pid, e
	}
	afterForkInChild()
	if _, _, e = syscall.RawSyscall(unix.SYS_SETNS, owner, unix.CLONE_NEWUSER, 0); e == 0 {
		_, _, e = syscall.RawSyscall6(req[0], req[1], req[2], req[3], req[4], req[5], 0)
	}
	errno := uintptr(e)
	syscall.RawSyscall(unix.SYS_WRITE, tell, uintptr(unsafe.Pointer(&errno)), unsafe.Sizeof(errno))
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
