package rawfork

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// none is a descriptor argument that is not given.
const none = ^uintptr(0)

func handle(fd int) uintptr {
	if fd < 0 {
		return none
	}
	return uintptr(fd)
}

// report is what a child says of the step that failed.
type report struct {
	step  uintptr
	errno uintptr
}

//go:nosplit
func (r *report) write(fd uintptr) {
	syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(r)), unsafe.Sizeof(*r))
}

// clone returns the arguments for a child in the given cgroup; clone3 as real
// root puts it there from its first instruction, where a write to cgroup.procs
// costs 5 to 10 ms.
func clone(cgroup int) *cloneArgs {
	ca := &cloneArgs{exitSignal: uint64(syscall.SIGCHLD)}
	if cgroup >= 0 {
		ca.flags, ca.cgroup = unix.CLONE_INTO_CGROUP, uint64(cgroup)
	}
	return ca
}

// wait reaps a child that is known to end at once.
func wait(pid uintptr) (syscall.WaitStatus, error) {
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(int(pid), &ws, 0, nil)
		if err != syscall.EINTR {
			return ws, err
		}
	}
}
