package rawfork

import (
	"fmt"
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
	pid, errno := forkWaiting(flags, r.Fd(), w.Fd())
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

// forkWaiting starts a child that ends when nobody can write to its pipe.
//
//go:noinline
//go:norace
//go:nosplit
func forkWaiting(flags, r, w uintptr) (uintptr, syscall.Errno) {
	var b byte
	beforeFork()
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, flags|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		afterFork()
		return pid, e
	}
	afterForkInChild()
	syscall.RawSyscall(unix.SYS_CLOSE, w, 0, 0)
	syscall.RawSyscall(unix.SYS_READ, r, uintptr(unsafe.Pointer(&b)), 1)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
