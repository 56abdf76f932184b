package rawfork

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// KernelFS is one filesystem of the kernel to mount on an open directory.
type KernelFS struct {
	Type  string
	Dir   int
	Flags uintptr
}

type kernelMount struct {
	fs    *byte
	dir   uintptr
	flags uintptr
}

// MountKernel mounts each in a child born into the pid namespace that the
// calling thread has set for its children, with the thread's other namespaces
// and its credentials. A proc shows the pid namespace of whoever mounts it.
func MountKernel(list ...KernelFS) error {
	ms := make([]kernelMount, len(list))
	for i, k := range list {
		name, err := syscall.BytePtrFromString(k.Type)
		if err != nil {
			return fmt.Errorf("mount %s: %w", k.Type, err)
		}
		ms[i] = kernelMount{name, uintptr(k.Dir), k.Flags}
	}
	dot, err := syscall.BytePtrFromString(".")
	if err != nil {
		return fmt.Errorf("mount kernel filesystems: %w", err)
	}
	syscall.ForkLock.Lock()
	pid, errno := forkMount(&ms[0], len(ms), dot)
	syscall.ForkLock.Unlock()
	if errno != 0 {
		return fmt.Errorf("fork into pid namespace: %w", errno)
	}
	ws, err := wait(pid)
	if err != nil {
		return fmt.Errorf("wait for mounts: %w", err)
	}
	if code := ws.ExitStatus(); code != 0 {
		return fmt.Errorf("mount kernel filesystems: %w", syscall.Errno(code))
	}
	return nil
}

// forkMount ends with the number of the first error as its exit status.
//
//go:noinline
//go:norace
//go:nosplit
func forkMount(ms *kernelMount, n int, dot *byte) (uintptr, syscall.Errno) {
	beforeFork()
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		afterFork()
		return pid, e
	}
	afterForkInChild()
	for i := 0; i < n; i++ {
		m := (*kernelMount)(unsafe.Add(unsafe.Pointer(ms), uintptr(i)*unsafe.Sizeof(*ms)))
		if _, _, e = syscall.RawSyscall(unix.SYS_FCHDIR, m.dir, 0, 0); e != 0 {
			break
		}
		_, _, e = syscall.RawSyscall6(unix.SYS_MOUNT, uintptr(unsafe.Pointer(m.fs)),
			uintptr(unsafe.Pointer(dot)), uintptr(unsafe.Pointer(m.fs)), m.flags, 0, 0)
		if e != 0 {
			break
		}
	}
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(e), 0, 0)
	}
}
