package holder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/cgroup"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/idle"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// patience bounds waiting for processes that were killed.
const patience = 10 * time.Second

// Main is the whole life of a holder. Standard input is the environment's
// [backends.Spec] as JSON, standard output takes one [wire.Reply] when it serves
// or why it does not. It does not return.
func Main() {
	// Or a goroutine that throws the namespaces of its thread away could get the
	// main thread, whose namespaces are what /proc/PID shows and what every path
	// through /proc/self means.
	runtime.LockOSThread()
	debug.SetGCPercent(20) // one of these idles per environment
	h, err := start()
	var r wire.Reply
	r.SetError(err)
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		os.Exit(1)
	}
	if err != nil {
		os.Exit(1)
	}
	// Whoever started us waits for the end of this pipe.
	if err := discardStdio(); err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
	}
	h.idle = idle.New()
	h.serve()
	if err := h.ways.Close(); err != nil { // the next command of any environment removes the rest
		fmt.Fprintln(os.Stderr, "holder:", err)
	}
	os.Exit(0)
}

func start() (*Holder, error) {
	var spec backends.Spec
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		return nil, fmt.Errorf("read spec: %w", err)
	}
	h := &Holder{spec: spec, dir: envdir.Dir(spec.Dir), exe: -1, user: -1, canaryUser: -1, net: -1, run: -1}
	h.thawed = sync.NewCond(&h.mu)
	if err := harden.Threads(); err != nil {
		return nil, err
	}
	if err := h.resolve(); err != nil {
		return nil, err
	}
	if err := settle(); err != nil {
		return nil, err
	}
	if err := h.lock(); err != nil {
		return nil, err
	}
	if err := h.takeOver(); err != nil {
		return nil, err
	}
	if err := h.network(); err != nil {
		return nil, err
	}
	if err := h.namespaces(); err != nil {
		return nil, err
	}
	if err := h.listen(); err != nil {
		return nil, err
	}
	return h, h.dir.Store(h.rec)
}

// network takes hold of the host's network, in which other holders may have died.
// What they left is in nobody's way, so that it cannot be removed is no reason not
// to start.
func (h *Holder) network() (err error) {
	if h.host, err = netns.Current(); err != nil {
		return err
	}
	if h.sweeper, err = lanes.NewSweeper(h.host); err != nil {
		return err
	}
	if err := h.tidy(); err != nil {
		fmt.Fprintln(os.Stderr, "holder: tidy:", err)
	}
	h.firewall = &firewall{ns: int(h.host.Fd())}
	h.ways, err = h.openWays()
	return err
}

// resolve finds the real name of the state directory: a cover is never put on
// through a symlink.
func (h *Holder) resolve() error {
	root, err := filepath.EvalSymlinks(h.spec.StateRoot)
	if err != nil {
		return fmt.Errorf("find state directory: %w", err)
	}
	h.spec.StateRoot = root
	return nil
}

// settle makes the process independent of whoever started it.
func settle() error {
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("leave working directory: %w", err)
	}
	syscall.Umask(0o022)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGUSR1, syscall.SIGUSR2)
	// Lowering it needs CAP_SYS_RESOURCE, which root in a container may lack.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0)
	raiseLimits()
	return nil
}

// raiseLimits takes over the limits of the machine's PID 1. Nobody below a user
// namespace can raise one later, so a service with a high limit could not be
// tried in the view. Nice and real-time limits stay: those are the host's CPU.
func raiseLimits() {
	for _, r := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_MEMLOCK, unix.RLIMIT_NPROC, unix.RLIMIT_CORE} {
		var top, own unix.Rlimit
		if unix.Prlimit(1, r, nil, &top) != nil || unix.Getrlimit(r, &own) != nil || top.Max <= own.Max {
			continue
		}
		own.Max = top.Max
		_ = unix.Setrlimit(r, &own) // the lower limit still is one
	}
	// A core pattern that is a pipe starts its program on the host, as the host's
	// root, whatever crashes where; 1 is the size at which the kernel does not
	// (core(5)). A file it writes where the process sees it.
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil || len(pattern) == 0 || pattern[0] == '|' {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
	}
}

// lock takes the environment; a predecessor that is just ending may have it.
func (h *Holder) lock() error {
	end := time.Now().Add(patience)
	for {
		f, err := h.dir.Lock(envdir.HolderLock, false)
		if err == nil {
			h.held = f
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return fmt.Errorf("take environment: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// takeOver ends whatever an earlier holder left and records a new one. A view
// may survive its holder for a moment, and one whose PID 1 is a service manager
// for good; the layers must not be mounted twice.
func (h *Holder) takeOver() error {
	group, err := cgroup.Open(h.spec.ID)
	if err != nil {
		return err
	}
	h.group = group
	old, err := h.dir.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := Sweep(group, old); err != nil {
		return err
	}
	if err := group.Adopt(); err != nil {
		return err
	}
	self := os.Getpid()
	born, err := envdir.StartTime(self)
	if err != nil {
		return err
	}
	h.rec = envdir.Holder{
		PID: self, Start: born, BootID: envdir.BootID(), Generation: old.Generation + 1,
		Mode: old.Mode, Cgroup: group.Name(), View: old.View, Mounts: old.Mounts,
		Relay: old.Relay,
	}
	// What the last view left in the layers is dated by its mount time.
	if old.View.Time != 0 {
		if err := h.recordOrigins(); err != nil {
			return err
		}
	}
	if old.Generation > 0 {
		if err := os.WriteFile(h.dir.Path(envdir.TwinLost), nil, 0o600); err != nil {
			return fmt.Errorf("record lost twin: %w", err)
		}
	}
	return nil
}

// End ends what is left of an environment without its holder and removes its
// groups.
func End(group *cgroup.Group, old envdir.Holder) error {
	if err := Sweep(group, old); err != nil {
		return err
	}
	if err := group.Kill("", patience); err != nil {
		return err
	}
	return group.Remove("")
}

// Sweep ends the processes of an environment's view, by its groups and by what
// its last holder recorded.
func Sweep(group *cgroup.Group, old envdir.Holder) error {
	for _, name := range []string{viewGroup, canaryGroup} {
		if err := group.Kill(name, patience); err != nil {
			return err
		}
		if err := group.Remove(name); err != nil {
			return err
		}
	}
	fd, ok := openInit(old)
	if !ok {
		return nil
	}
	defer unix.Close(fd)
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	if !ends(fd, patience) {
		return fmt.Errorf("end old view (process %d): it does not die", old.Init)
	}
	return nil
}

// openInit returns a pidfd of the PID 1 that a holder recorded, if there is one.
func openInit(old envdir.Holder) (fd int, ok bool) {
	return openProcess(old.Init, old.InitStart, old.BootID)
}

func openProcess(pid int, start uint64, boot string) (fd int, ok bool) {
	if !envdir.Alive(pid, start, boot) {
		return -1, false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, false // gone
	}
	if !envdir.Alive(pid, start, boot) {
		unix.Close(fd)
		return -1, false // the number is another's
	}
	return fd, true
}

// ends waits for the end of a process. A pidfd of a PID 1 is readable once
// everything in its namespace is gone.
func ends(fd int, within time.Duration) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(within/time.Millisecond))
		if err != unix.EINTR { // which poll(2) is never restarted after
			return err == nil && n > 0
		}
	}
}

func discardStdio() error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	return errors.Join(unix.Dup3(null, 0, 0), unix.Dup3(null, 1, 0))
}
