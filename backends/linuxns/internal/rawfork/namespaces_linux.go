package rawfork

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Namespaces makes a user namespace with the map 0 → base of the given size
// and, with net, a network namespace that it owns. They live by their
// descriptors alone: the process that was born into them is gone on return.
func Namespaces(base, size int, net bool) (userns, netns int, err error) {
	userns, netns = -1, -1
	r, w, err := os.Pipe()
	if err != nil {
		return -1, -1, fmt.Errorf("make pipe: %w", err)
	}
	defer r.Close()
	flags := uintptr(unix.CLONE_NEWUSER)
	if net {
		flags |= unix.CLONE_NEWNET
	}
	syscall.ForkLock.Lock()
	pid, errno := forkWaiting(flags, r.Fd())
	syscall.ForkLock.Unlock()
	if errno != 0 {
		w.Close()
		return -1, -1, fmt.Errorf("make namespaces: %w", errno)
	}
	defer wait(pid)
	defer w.Close() // ends the child
	proc := "/proc/" + strconv.Itoa(int(pid))
	defer func() {
		if err != nil && userns >= 0 {
			unix.Close(userns)
			userns = -1
		}
	}()
	m := []byte(fmt.Sprintf("0 %d %d\n", base, size))
	for _, f := range []string{"/uid_map", "/gid_map"} {
		if err := os.WriteFile(proc+f, m, 0); err != nil {
			return -1, -1, fmt.Errorf("map ids: %w", err)
		}
	}
	if userns, err = unix.Open(proc+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return -1, -1, fmt.Errorf("open user namespace: %w", err)
	}
	if net {
		if netns, err = unix.Open(proc+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return userns, -1, fmt.Errorf("open network namespace: %w", err)
		}
	}
	return userns, netns, nil
}

// NetIn makes a network namespace that an existing user namespace owns.
func NetIn(userns int) (int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return -1, fmt.Errorf("make pipe: %w", err)
	}
	defer r.Close()
	ready, tell, err := os.Pipe()
	if err != nil {
		w.Close()
		return -1, fmt.Errorf("make pipe: %w", err)
	}
	defer ready.Close()
	syscall.ForkLock.Lock()
	pid, errno := forkNet(uintptr(userns), r.Fd(), tell.Fd())
	syscall.ForkLock.Unlock()
	tell.Close()
	if errno != 0 {
		w.Close()
		return -1, fmt.Errorf("make network namespace: %w", errno)
	}
	defer wait(pid)
	defer w.Close() // ends the child
	var rep report
	b := unsafe.Slice((*byte)(unsafe.Pointer(&rep)), unsafe.Sizeof(rep))
	if _, err := io.ReadFull(ready, b); err != nil {
		return -1, fmt.Errorf("make network namespace: %w", err)
	}
	if rep.errno != 0 {
		return -1, fmt.Errorf("make network namespace: %w", syscall.Errno(rep.errno))
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(int(pid))+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open network namespace: %w", err)
	}
	return fd, nil
}

// alone makes r the only descriptor of a child that is never replaced by a
// program: close-on-exec does not work for it, and two children that hold each
// other's pipes wait for each other for ever.
//
//go:nosplit
func alone(r uintptr) {
	if r != 0 {
		syscall.RawSyscall(unix.SYS_DUP3, r, 0, 0)
	}
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 1, uintptr(^uint32(0)), 0)
}

// forkNet starts a child that enters the user namespace, makes a network
// namespace, reports, and ends when nobody can write to its pipe.
//
//go:noinline
//go:norace
//go:nosplit
func forkNet(user, r, tell uintptr) (uintptr, syscall.Errno) {
	var rep report
	var b byte
	beforeFork()
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		afterFork()
		return pid, e
	}
	afterForkInChild()
	if _, _, e = syscall.RawSyscall(unix.SYS_SETNS, user, unix.CLONE_NEWUSER, 0); e == 0 {
		_, _, e = syscall.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWNET, 0, 0)
	}
	rep.errno = uintptr(e)
	rep.write(tell)
	alone(r)
	syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&b)), 1)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// forkWaiting starts a child that ends when nobody can write to its pipe.
//
//go:noinline
//go:norace
//go:nosplit
func forkWaiting(flags, r uintptr) (uintptr, syscall.Errno) {
	var b byte
	beforeFork()
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, flags|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		afterFork()
		return pid, e
	}
	afterForkInChild()
	alone(r)
	syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&b)), 1)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
