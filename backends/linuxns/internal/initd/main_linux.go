package initd

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/canary"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/idle"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// Argv0 makes the running program a view's PID 1 when it is re-executed.
const Argv0 = "netsandbox-init"

// Main is the whole life of PID 1. Descriptor 3 is the socket to the holder, 4
// the pipe on which the builder waits for "ok". It does not return.
func Main() {
	debug.SetGCPercent(20) // one of these idles per environment
	unix.CloseOnExec(4)
	status := os.NewFile(4, "status")
	s, err := boot()
	if err != nil {
		fmt.Fprint(status, err)
		os.Exit(1)
	}
	fmt.Fprint(status, "ok")
	status.Close()
	if s.canary {
		if err := canary.Serve(s.conn, s.mode); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	s.idle = idle.New()
	// We are in an init function, whose goroutine is wired to the main thread:
	// every wake-up of it would be a switch of threads.
	go func() {
		s.serve()
		os.Exit(0)
	}()
	select {}
}

// boot does what must be done from inside, in the order in which each step
// still has the rights it needs.
func boot() (*server, error) {
	conn, err := wire.New(3)
	if err != nil {
		return nil, err
	}
	var b wire.Boot
	if _, _, err := conn.Recv(&b); err != nil {
		return nil, fmt.Errorf("receive boot message: %w", err)
	}
	mode, err := harden.Lookup(b.Mode)
	if err != nil {
		return nil, err
	}
	if err := settle(mode); err != nil {
		return nil, err
	}
	canary.OpenPing(mode)
	s := &server{conn: conn, mode: mode, canary: b.Canary, name: b.Name, limits: limits()}
	if b.Canary {
		if err := canary.Seal(mode); err != nil {
			return nil, err
		}
	} else {
		s.grouped = commandGroup()
	}
	if b.Scope {
		if err := harden.ScopeAbstract(); err != nil {
			return nil, err
		}
	}
	if err := mode.Seccomp(); err != nil {
		return nil, err
	}
	if b.Canary {
		return s, canary.Drop()
	}
	// With a user namespace they went before this program was executed, when no
	// mask had to be mounted any more.
	if !mode.UserNS() {
		if err := mode.DropCaps(); err != nil {
			return nil, err
		}
	}
	s.startReaper()
	return s, nil
}

// settle arranges the process and its mount namespace.
func settle(mode harden.Mode) error {
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	syscall.Umask(0o022)
	// Nothing that a handler of the runtime would turn into an exit.
	for n := syscall.Signal(1); n < 32; n++ {
		switch n {
		case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGKILL, syscall.SIGSTOP:
		default:
			signal.Ignore(n)
		}
	}
	// The holder is spared by the OOM killer; what runs in here is not. Before
	// the process stops being dumpable, which gives its files to another owner.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0); err != nil {
		return fmt.Errorf("set OOM score: %w", err)
	}
	// From inside: the gid option of Linux 6.1 takes no number above 2^31.
	err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
		"newinstance,ptmxmode=0666,mode=620,gid=5")
	if err != nil {
		return fmt.Errorf("mount devpts: %w", err)
	}
	// Service managers pass mounts on to their services by sharing, and show no
	// error where it is missing.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	if err := mode.Mask(); err != nil {
		return err
	}
	if err := discardStdio(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set undumpable: %w", err)
	}
	return nil
}

// discardStdio replaces what was inherited from the host by the view's null
// device: whatever PID 1 holds open is within reach as /proc/1/fd/N.
func discardStdio() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open null device: %w", err)
	}
	defer unix.Close(null)
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return fmt.Errorf("replace descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// limits returns PID 1's own resource limits, which nothing inside can exceed.
func limits() []unix.Rlimit {
	ls := make([]unix.Rlimit, wire.Limits)
	for r := range ls {
		if err := unix.Getrlimit(r, &ls[r]); err != nil {
			return ls[:r]
		}
	}
	return ls
}
