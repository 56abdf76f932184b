package killpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Step is one durable step of a program.
type Step struct {
	N    int    // from 1
	Call string // name of the system call
}

func (s Step) String() string { return fmt.Sprintf("%d %s", s.N, s.Call) }

// When says on which side of a step the world stops.
type When string

// The sides.
const (
	Before When = "before" // the call is about to be made
	After  When = "after"  // it has returned
)

// Stop is what to do when a program has reached a step; the program stands still
// meanwhile. Returning true lets it go on, false kills it.
type Stop func(pid int, s Step) (goOn bool)

// Trace runs a command to its end and returns its durable steps.
func Trace(cmd *exec.Cmd) ([]Step, error) {
	var steps []Step
	err := Run(cmd, func(_ int, s Step, w When) bool {
		if w == Before {
			steps = append(steps, s)
		}
		return true
	})
	return steps, err
}

// Kill runs a command until it has reached step n and hands it to stop. When the
// command ends without having got there, stop is not called and reached is false.
func Kill(cmd *exec.Cmd, n int, when When, stop Stop) (reached bool, err error) {
	err = Run(cmd, func(pid int, s Step, w When) bool {
		if s.N != n || w != when || reached {
			return true
		}
		reached = true
		return stop(pid, s)
	})
	return reached, err
}

// Run runs a command and shows every durable step to visit, twice. A visit that
// returns false kills the command. The error is that of the command, as
// [exec.Cmd.Wait] would return it.
func Run(cmd *exec.Cmd, visit func(pid int, s Step, w When) bool) error {
	return Options{}.Run(cmd, visit)
}

// Options says what of a run is shown, where that is not all of it.
type Options struct {
	// From, when not nil, lets the command run at its own speed until it answers
	// true; only from then on are steps shown, and counted. Stopping at every
	// system call makes a program several times slower. It is called again and
	// again, on another thread, and what the command does meanwhile goes unseen, so
	// it has to look for something that comes well before the steps of interest.
	From func() bool
	// Metadata shows changes of owner, mode, time and attributes too: no sync
	// orders them, but a program killed between two of them leaves a mixture.
	Metadata bool
}

// Run is the function [Run] with options.
func (o Options) Run(cmd *exec.Cmd, visit func(pid int, s Step, w When) bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	t := &tracer{pid: pid, visit: visit, metadata: o.Metadata, inside: map[int]Step{}}
	t.watching.Store(o.From == nil)
	over := make(chan struct{})
	var wg sync.WaitGroup
	if o.From != nil {
		wg.Go(func() { t.await(o.From, over) })
	}
	status, err := t.run()
	close(over)
	wg.Wait()
	_ = cmd.Process.Release()
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		return fmt.Errorf("trace %s: %w", cmd.Path, err)
	}
	switch {
	case status.Signaled():
		return &ExitError{Signal: status.Signal()}
	case status.ExitStatus() != 0:
		return &ExitError{Code: status.ExitStatus()}
	}
	return nil
}

// ExitError is how a traced command ended when not with success.
type ExitError struct {
	Code   int
	Signal unix.Signal
}

func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return "killed by " + unix.SignalName(e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

type tracer struct {
	pid    int
	visit  func(int, Step, When) bool
	n      int
	inside map[int]Step // by thread: the durable call it is in
	killed bool

	metadata bool
	watching atomic.Bool // threads stop at every system call
}

// await makes every thread stop once, so that it goes on under watch. One that is
// cloned meanwhile begins with a stop.
func (t *tracer) await(begun func() bool, over <-chan struct{}) {
	for !begun() {
		select {
		case <-over:
			return
		case <-time.After(50 * time.Microsecond):
		}
	}
	t.watching.Store(true)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", t.pid))
	if err != nil {
		return // gone meanwhile
	}
	for _, e := range threads {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			_ = unix.Tgkill(t.pid, tid, unix.SIGSTOP) // may be gone
		}
	}
}

// run drives every thread from stop to stop until the process is gone.
func (t *tracer) run() (unix.WaitStatus, error) {
	var ws unix.WaitStatus
	if _, err := unix.Wait4(t.pid, &ws, unix.WALL, nil); err != nil { // the stop after exec
		return ws, fmt.Errorf("wait for start: %w", err)
	}
	// Threads are followed, children are not. Should the tracer die, so does the
	// tracee: a half-run program must not be left behind.
	const opts = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(t.pid, opts); err != nil {
		return ws, fmt.Errorf("set options: %w", err)
	}
	if err := t.resume(t.pid, 0); err != nil {
		return ws, err
	}
	for {
		// Only threads of this tracer's own thread group are waited for, so a test
		// that has other children is not robbed of them.
		tid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return ws, fmt.Errorf("wait: %w", err)
		}
		if ws.Exited() || ws.Signaled() {
			if tid == t.pid {
				return ws, nil
			}
			delete(t.inside, tid)
			continue
		}
		if err := t.resume(tid, t.stopped(tid, ws)); err != nil {
			return ws, err
		}
	}
}

// stopped handles one stop of one thread and returns the signal to deliver.
func (t *tracer) stopped(tid int, ws unix.WaitStatus) int {
	switch sig := ws.StopSignal(); {
	case sig == unix.SIGTRAP|0x80:
		t.syscall(tid)
	case sig == unix.SIGTRAP && ws.TrapCause() > 0:
	case sig == unix.SIGSTOP: // how a new thread reports, and await
	case sig != unix.SIGTRAP:
		return int(sig)
	}
	return 0
}

func (t *tracer) resume(tid, sig int) error {
	goOn := unix.PtraceCont
	if t.watching.Load() {
		goOn = unix.PtraceSyscall
	}
	err := goOn(tid, sig)
	if errors.Is(err, unix.ESRCH) {
		return nil // killed meanwhile; the next wait says so
	}
	if err != nil {
		return fmt.Errorf("continue thread %d: %w", tid, err)
	}
	return nil
}

// syscall tells entry from exit and shows durable steps.
func (t *tracer) syscall(tid int) {
	var info syscallInfo
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if e != 0 || t.killed {
		return
	}
	switch info.op {
	case opEntry:
		name, ok := durable[info.nr]
		if !ok && t.metadata {
			name, ok = metadata[info.nr]
		}
		if !ok {
			return
		}
		t.n++
		s := Step{N: t.n, Call: name}
		t.inside[tid] = s
		t.show(s, Before)
	case opExit:
		if s, ok := t.inside[tid]; ok {
			delete(t.inside, tid)
			t.show(s, After)
		}
	}
}

func (t *tracer) show(s Step, w When) {
	if !t.visit(t.pid, s, w) {
		t.killed = true
		_ = unix.Kill(t.pid, unix.SIGKILL)
	}
}

// syscallInfo is struct ptrace_syscall_info of linux/ptrace.h as far as it is
// needed, with room for the rest.
type syscallInfo struct {
	op   uint8
	_    [3]uint8
	arch uint32
	_    [2]uint64 // instruction and stack pointer
	nr   uint64
	_    [7]uint64
}

const (
	opEntry = 1
	opExit  = 2
)

// durable are the calls after which the disk may be different.
var durable = map[uint64]string{
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_SYNCFS: "syncfs",
	unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2",
	unix.SYS_UNLINKAT: "unlinkat", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_SYMLINKAT: "symlinkat", unix.SYS_LINKAT: "linkat",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_FALLOCATE: "fallocate",
}

// metadata are the calls that change what is said of an object.
var metadata = map[uint64]string{
	unix.SYS_FCHOWN: "fchown", unix.SYS_FCHOWNAT: "fchownat", unix.SYS_FCHMOD: "fchmod", unix.SYS_FCHMODAT: "fchmodat",
	unix.SYS_UTIMENSAT: "utimensat", unix.SYS_SETXATTR: "setxattr", unix.SYS_LSETXATTR: "lsetxattr", unix.SYS_FSETXATTR: "fsetxattr",
	unix.SYS_REMOVEXATTR: "removexattr", unix.SYS_LREMOVEXATTR: "lremovexattr", unix.SYS_FREMOVEXATTR: "fremovexattr",
}
