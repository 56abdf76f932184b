package rawfork

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command is a program to run for somebody.
type Command struct {
	// Paths are tried in order, as execvp(3) does with those from PATH.
	Paths  []string
	Argv   []string
	Env    []string
	Dir    string
	UID    uint32
	GID    uint32
	Groups []uint32
	Files  [3]int // become 0, 1, 2
	// Terminal is which of 0, 1, 2 becomes the controlling terminal, or -1.
	Terminal int
	Umask    int
	Limits   []unix.Rlimit // by resource number
	Cgroup   int           // descriptor, or -1
}

// Step is a part of starting a command.
type Step uintptr

// The steps a caller tells apart.
const (
	StepFork Step = iota
	StepLimits
	StepFiles
	StepTerminal
	StepIdentity
	StepDir
	StepExec
)

// StepError says which step of starting a command failed.
type StepError struct {
	Step Step
	Err  error
}

func (e *StepError) Error() string { return fmt.Sprintf("start command: %v", e.Err) }

// Unwrap returns the error of the system call.
func (e *StepError) Unwrap() error { return e.Err }

// command is what the child reads, prepared before the fork.
type command struct {
	clone        *cloneArgs
	limits       *unix.Rlimit
	nlimits      uintptr
	files        [3]uintptr
	terminal     uintptr
	umask        uintptr
	groups       *uint32
	ngroups      uintptr
	uid, gid     uintptr
	dir          *byte
	paths        **byte
	npaths       uintptr
	argv, env    **byte
	report       uintptr
	resetAction  [32]byte // struct sigaction, all zero: SIG_DFL
	emptySignals uint64
}

// Start runs the command in a session of its own. On success the caller waits
// for the process; on failure none is left and the error is a [*StepError].
func (c *Command) Start() (int, error) {
	paths, err := syscall.SlicePtrFromStrings(c.Paths)
	if err != nil {
		return 0, &StepError{StepExec, err}
	}
	argv, err := syscall.SlicePtrFromStrings(c.Argv)
	if err != nil {
		return 0, &StepError{StepExec, err}
	}
	env, err := syscall.SlicePtrFromStrings(c.Env)
	if err != nil {
		return 0, &StepError{StepExec, err}
	}
	dir, err := syscall.BytePtrFromString(c.Dir)
	if err != nil {
		return 0, &StepError{StepDir, err}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, &StepError{StepFiles, err}
	}
	defer r.Close()
	x := &command{
		clone: clone(c.Cgroup), nlimits: uintptr(len(c.Limits)), terminal: handle(c.Terminal),
		umask: uintptr(c.Umask), ngroups: uintptr(len(c.Groups)), uid: uintptr(c.UID), gid: uintptr(c.GID),
		dir: dir, paths: &paths[0], npaths: uintptr(len(c.Paths)), argv: &argv[0], env: &env[0], report: w.Fd(),
	}
	if len(c.Limits) > 0 {
		x.limits = &c.Limits[0]
	}
	if len(c.Groups) > 0 {
		x.groups = &c.Groups[0]
	}
	for i, fd := range c.Files {
		x.files[i] = uintptr(fd)
	}
	if c.UID == 0 && c.GID == 0 {
		// Copying and taking apart PID 1's page tables for each command is a
		// millisecond. A child with other credentials does not share its memory: a
		// change of them makes the memory as dumpable as fs.suid_dumpable says
		// (commit_creds, kernel/cred.c), PID 1's too.
		x.clone.flags |= unix.CLONE_VM | unix.CLONE_VFORK
	}
	syscall.ForkLock.Lock()
	pid, errno := forkCommand(x)
	afterFork()
	syscall.ForkLock.Unlock()
	w.Close()
	if errno != 0 {
		return 0, &StepError{StepFork, errno}
	}
	var rep report
	b := unsafe.Slice((*byte)(unsafe.Pointer(&rep)), unsafe.Sizeof(rep))
	// A successful exec closes the pipe with nothing in it.
	if _, err := io.ReadFull(r, b); err != nil {
		return int(pid), nil
	}
	if _, err := wait(pid); err != nil {
		return 0, &StepError{StepExec, err}
	}
	return 0, &StepError{Step(rep.step), syscall.Errno(rep.errno)}
}

// forkCommand forks and, in the child, becomes the command. The caller does what
// has to be done in the parent: parent and child may share this frame.
//
//go:noinline
//go:norace
//go:nosplit
func forkCommand(x *command) (uintptr, syscall.Errno) {
	var r report
	var denied, e syscall.Errno
	var i uintptr
	beforeFork()
	pid, errno := vfork(unix.SYS_CLONE3, uintptr(unsafe.Pointer(x.clone)), unsafe.Sizeof(*x.clone))
	if errno == uintptr(unix.ENOSYS) { // denied by the filter of a mode without user namespaces
		pid, errno = vfork(syscall.SYS_CLONE, uintptr(x.clone.flags&^unix.CLONE_INTO_CGROUP)|uintptr(syscall.SIGCHLD), 0)
	}
	if errno != 0 || pid != 0 {
		return pid, syscall.Errno(errno)
	}
	afterForkInChild()
	syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	// Whatever was ignored when the holder was started is not the command's.
	for i = 1; i < 65; i++ {
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, i, uintptr(unsafe.Pointer(&x.resetAction)), 0, 8, 0, 0)
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&x.emptySignals)), 0, 8, 0, 0)
	syscall.RawSyscall(unix.SYS_UMASK, x.umask, 0, 0)
	r.step = uintptr(StepLimits)
	for i = 0; i < x.nlimits; i++ {
		l := unsafe.Add(unsafe.Pointer(x.limits), i*unsafe.Sizeof(*x.limits))
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, i, uintptr(l), 0, 0, 0); e != 0 {
			goto failed
		}
	}
	r.step = uintptr(StepFiles)
	for i = 0; i < 3; i++ {
		if _, _, e = syscall.RawSyscall(unix.SYS_DUP3, x.files[i], i, 0); e != 0 {
			goto failed
		}
	}
	if x.terminal != none {
		r.step = uintptr(StepTerminal)
		if _, _, e = syscall.RawSyscall(unix.SYS_IOCTL, x.terminal, unix.TIOCSCTTY, 0); e != 0 {
			goto failed
		}
	}
	r.step = uintptr(StepIdentity)
	if _, _, e = syscall.RawSyscall(unix.SYS_SETGROUPS, x.ngroups, uintptr(unsafe.Pointer(x.groups)), 0); e != 0 {
		goto failed
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_SETRESGID, x.gid, x.gid, x.gid); e != 0 {
		goto failed
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_SETRESUID, x.uid, x.uid, x.uid); e != 0 {
		goto failed
	}
	r.step = uintptr(StepDir)
	if _, _, e = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(x.dir)), 0, 0); e != 0 {
		goto failed
	}
	r.step = uintptr(StepExec)
	for i = 0; i < x.npaths; i++ {
		p := *(**byte)(unsafe.Add(unsafe.Pointer(x.paths), i*unsafe.Sizeof(x.dir)))
		_, _, e = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(p)),
			uintptr(unsafe.Pointer(x.argv)), uintptr(unsafe.Pointer(x.env)))
		if e == unix.EACCES {
			denied = e
		} else if e != unix.ENOENT && e != unix.ENOTDIR {
			goto failed
		}
	}
	if denied != 0 {
		e = denied
	}
failed:
	r.errno = uintptr(e)
	r.write(x.report)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 125, 0, 0)
	}
}
