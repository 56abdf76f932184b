package rawfork

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Init is a PID 1 to start. Its descriptors are 3, the socket, and 4, the
// status pipe; nothing else of the caller's travels along.
type Init struct {
	Cgroup int // descriptor of its cgroup, or -1
	User   int // user namespace to enter, or -1
	Net    int // network namespace to enter, or -1 to stay
	NewNet bool
	Exe    int // program to run
	Argv   []string
	Env    []string
	Socket int
	Status int
	Gate   int // one byte read from it lets PID 1 go on
	// Drop lists capabilities to take from the bounding set before exec, while
	// there is one thread to take them from.
	Drop []int
}

// steps names what can fail on the way to PID 1, by number.
var steps = [...]string{
	1: "enter network namespace", 2: "enter user namespace", 3: "become root of the namespace",
	4: "make pid namespace", 5: "make cgroup namespace", 6: "wait for the mounts",
	7: "make mount namespace", 8: "drop capabilities", 9: "execute init",
}

// Start forks PID 1 up to the point where it waits at its gate, and returns its
// pid as the caller sees it. PID 1 is a child of the calling process and must
// be waited for. One byte arrives on the status pipe when it is at the gate; a
// failure after that comes there too and is read by [ReadStatus].
func (in *Init) Start() (int, error) {
	argv, err := syscall.SlicePtrFromStrings(in.Argv)
	if err != nil {
		return 0, fmt.Errorf("start init: %w", err)
	}
	env, err := syscall.SlicePtrFromStrings(in.Env)
	if err != nil {
		return 0, fmt.Errorf("start init: %w", err)
	}
	// Above the numbers they will get, or one dup3 would overwrite the next.
	fds := [4]int{in.Socket, in.Status, in.Gate, in.Exe}
	for i, fd := range fds {
		if fds[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 20); err != nil {
			return 0, fmt.Errorf("start init: %w", err)
		}
		defer unix.Close(fds[i])
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make pipe: %w", err)
	}
	defer r.Close()
	flags := uintptr(unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_PARENT)
	if in.NewNet {
		flags |= unix.CLONE_NEWNET
	}
	empty := new(byte)
	drop := make([]uintptr, len(in.Drop)+1) // never empty
	for i, c := range in.Drop {
		drop[i] = uintptr(c)
	}
	syscall.ForkLock.Lock()
	pid, errno := forkInit(clone(in.Cgroup), handle(in.User), handle(in.Net), flags,
		uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2]), uintptr(fds[3]), w.Fd(),
		&drop[0], uintptr(len(in.Drop)), empty, &argv[0], &env[0])
	syscall.ForkLock.Unlock()
	w.Close()
	if errno != 0 {
		return 0, fmt.Errorf("fork init: %w", errno)
	}
	var rep report
	b := unsafe.Slice((*byte)(unsafe.Pointer(&rep)), unsafe.Sizeof(rep))
	_, rerr := io.ReadFull(r, b)
	if _, err := wait(pid); err != nil {
		return 0, fmt.Errorf("wait for fork of init: %w", err)
	}
	if rerr != nil {
		return 0, errors.New("start init: killed before it began")
	}
	if rep.step != 0 {
		return 0, fmt.Errorf("%s: %w", steps[rep.step], syscall.Errno(rep.errno))
	}
	return int(rep.errno), nil
}

// ReadStatus explains what a PID 1 wrote after passing its gate: nothing but
// "ok" is a success.
func ReadStatus(b []byte) error {
	var rep report
	switch {
	case string(b) == "ok":
		return nil
	case len(b) == 0:
		return errors.New("init was killed")
	case len(b) == int(unsafe.Sizeof(rep)) && b[1] == 0:
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&rep)), unsafe.Sizeof(rep)), b)
		if rep.step < uintptr(len(steps)) {
			return fmt.Errorf("%s: %w", steps[rep.step], syscall.Errno(rep.errno))
		}
	}
	return errors.New(string(b))
}

// forkInit: the first child enters the namespaces, because only the second one
// is born into a pid namespace; it reports the second's pid and ends.
//
//go:noinline
//go:norace
//go:nosplit
func forkInit(ca *cloneArgs, user, net, flags, socket, status, gate, exe, rep uintptr, drop *uintptr, ndrop uintptr, empty *byte, argv, env **byte) (uintptr, syscall.Errno) {
	var r report
	var b byte
	var n uintptr
	beforeFork()
	pid, _, e := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(ca)), unsafe.Sizeof(*ca), 0)
	if e != 0 || pid != 0 {
		afterFork()
		return pid, e
	}
	afterForkInChild()
	if net != none {
		r.step = 1
		if _, _, e = syscall.RawSyscall(unix.SYS_SETNS, net, unix.CLONE_NEWNET, 0); e != 0 {
			goto failed
		}
	}
	if user != none {
		r.step = 2
		if _, _, e = syscall.RawSyscall(unix.SYS_SETNS, user, unix.CLONE_NEWUSER, 0); e != 0 {
			goto failed
		}
	}
	r.step = 3
	syscall.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
	if _, _, e = syscall.RawSyscall(unix.SYS_SETRESGID, 0, 0, 0); e != 0 {
		goto failed
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0); e != 0 {
		goto failed
	}
	r.step = 4
	// CLONE_PARENT: PID 1 is a child of the caller and not of this process.
	if pid, _, e = syscall.RawSyscall6(syscall.SYS_CLONE, flags|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0); e != 0 {
		goto failed
	}
	if pid != 0 {
		r.step, r.errno = 0, pid
		r.write(rep)
		goto end
	}
	syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	syscall.RawSyscall(unix.SYS_DUP3, socket, 3, 0)
	syscall.RawSyscall(unix.SYS_DUP3, status, 4, 0)
	syscall.RawSyscall(unix.SYS_DUP3, gate, 5, 0)
	syscall.RawSyscall(unix.SYS_DUP3, exe, 6, unix.O_CLOEXEC)
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 7, uintptr(^uint32(0)), 0)
	rep = 4
	r.step = 5
	if _, _, e = syscall.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP, 0, 0); e != 0 {
		goto failed
	}
	b = '1'
	syscall.RawSyscall(unix.SYS_WRITE, 4, uintptr(unsafe.Pointer(&b)), 1)
	r.step = 6
	if n, _, _ = syscall.RawSyscall(unix.SYS_READ, 5, uintptr(unsafe.Pointer(&b)), 1); n != 1 {
		goto end // the builder is gone and nobody reads a report
	}
	syscall.RawSyscall(unix.SYS_CLOSE, 5, 0, 0)
	r.step = 7
	// From here on every mount made by the builder is locked for the inside.
	if _, _, e = syscall.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWNS, 0, 0); e != 0 {
		goto failed
	}
	r.step = 8
	for n = 0; n < ndrop; n++ {
		c := *(*uintptr)(unsafe.Add(unsafe.Pointer(drop), n*unsafe.Sizeof(n)))
		if _, _, e = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); e != 0 {
			goto failed
		}
	}
	r.step = 9
	_, _, e = syscall.RawSyscall6(unix.SYS_EXECVEAT, 6, uintptr(unsafe.Pointer(empty)),
		uintptr(unsafe.Pointer(argv)), uintptr(unsafe.Pointer(env)), unix.AT_EMPTY_PATH, 0)
failed:
	r.errno = uintptr(e)
	r.write(rep)
end:
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}
