package lease

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// trial is a running applier with its keeper.
type trial struct {
	place
	t       *testing.T
	applier int
	keeper  int
	cmd     *exec.Cmd
	in      io.WriteCloser
	ended   chan struct{}
}

func newPlace(t *testing.T) place {
	t.Helper()
	p := place(t.TempDir())
	if err := errors.Join(p.leave("host", ""), p.leave("txn", "armed")); err != nil {
		t.Fatal(err)
	}
	return p
}

// begin starts an applier and waits until it changes the host under a lease.
func begin(t *testing.T, how string) *trial {
	t.Helper()
	tr := &trial{place: newPlace(t), t: t, ended: make(chan struct{})}
	tr.cmd = exec.Command("/proc/self/exe", string(tr.place), how)
	tr.cmd.Env = append(os.Environ(), partVar+"=applier")
	tr.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	tr.start()
	tr.applier = tr.cmd.Process.Pid
	eventually(t, "the host changes", func() bool { return tr.read("host") != "" })
	return tr
}

func (tr *trial) start() {
	tr.t.Helper()
	var err error
	if tr.in, err = tr.cmd.StdinPipe(); err != nil {
		tr.t.Fatal(err)
	}
	out, err := tr.cmd.StdoutPipe()
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.cmd.Stderr = os.Stderr
	if err := tr.cmd.Start(); err != nil {
		tr.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if w := words(line); err != nil || len(w) != 2 || w[0] != "armed" {
		tr.t.Fatalf("applier said %q (%v)", line, err)
	} else if tr.keeper, err = strconv.Atoi(w[1]); err != nil {
		tr.t.Fatal(err)
	}
	go func() { _ = tr.cmd.Wait(); close(tr.ended) }()
	tr.t.Cleanup(tr.end)
}

// end leaves no process and no cgroup behind, whatever the test found.
func (tr *trial) end() {
	for _, pid := range []int{tr.keeper, tr.applier} {
		if pid != 0 && alive(pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	<-tr.ended
	eventually(tr.t, "the keeper ends", func() bool { return !alive(tr.keeper) })
	Sweep()
}

// alive reports whether a process of ours runs under a pid; a zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func (tr *trial) signal(pid int, s unix.Signal) {
	tr.t.Helper()
	if err := unix.Kill(pid, s); err != nil {
		tr.t.Fatalf("signal %v to %d: %v", s, pid, err)
	}
}

func (tr *trial) order(s string) {
	tr.t.Helper()
	if _, err := io.WriteString(tr.in, s+"\n"); err != nil {
		tr.t.Fatal(err)
	}
}

// undone waits for the keeper's undo and checks that it is the last word.
func (tr *trial) undone(want Reason) {
	tr.t.Helper()
	eventually(tr.t, "the keeper undoes", func() bool { return tr.has("settled") })
	if got := tr.read("undone"); got != string(want) {
		tr.t.Errorf("undone because %q, want %q", got, want)
	}
	eventually(tr.t, "the keeper ends", func() bool { return !alive(tr.keeper) })
	if alive(tr.applier) {
		tr.t.Error("the applier lives on over an undone host")
	}
	if s := tr.read("host"); s != "" {
		tr.t.Errorf("%d changes are left on the host", len(s))
	}
}

func TestApplierKilled(t *testing.T) {
	tr := begin(t, "patient") // the lease is long: it is the death that counts
	tr.signal(tr.applier, unix.SIGKILL)
	tr.undone(ApplierDied)
}

func TestApplierStoppedPastItsLeaseAndContinued(t *testing.T) {
	tr := begin(t, "")
	tr.signal(tr.applier, unix.SIGSTOP)
	// Continue it in the very moment that the undo is done, as an operator might.
	eventually(t, "the keeper undoes", func() bool { return tr.has("undone") })
	_ = unix.Kill(tr.applier, unix.SIGCONT)
	tr.undone(Lapsed)
}

func TestRenewedLeaseOutlivesItsBound(t *testing.T) {
	tr := begin(t, "")
	n := 0
	eventually(t, "three bounds pass", func() bool { n = len(tr.read("host")); return n > 1200 || !alive(tr.keeper) })
	if tr.has("undone") || !alive(tr.keeper) {
		t.Fatal("a lease that was renewed lapsed")
	}
	tr.order("commit")
	<-tr.ended
}

func TestKeeperKilled(t *testing.T) {
	tr := begin(t, "patient")
	tr.signal(tr.keeper, unix.SIGKILL)
	<-tr.ended
	if why := tr.read("lost"); !strings.Contains(why, ErrLost.Error()) {
		t.Errorf("the applier says %q", why)
	}
	if tr.read("host") != "" || tr.has("undone") {
		t.Error("the applier did not undo by itself")
	}
}

func TestKeeperStoppedIsReplacedByTheApplier(t *testing.T) {
	tr := begin(t, "")
	tr.signal(tr.keeper, unix.SIGSTOP)
	<-tr.ended
	if why := tr.read("lost"); !strings.Contains(why, "did not answer") {
		t.Errorf("the applier says %q", why)
	}
	eventually(t, "the keeper ends", func() bool { return !alive(tr.keeper) })
	if tr.has("undone") || tr.read("host") != "" {
		t.Error("both undid, or none")
	}
}

func TestBothKilledLeavesTheTransactionArmed(t *testing.T) {
	tr := begin(t, "patient")
	tr.signal(tr.applier, unix.SIGSTOP)
	tr.signal(tr.keeper, unix.SIGKILL)
	tr.signal(tr.applier, unix.SIGKILL)
	<-tr.ended
	eventually(t, "the keeper ends", func() bool { return !alive(tr.keeper) })
	if txn := tr.read("txn"); txn != "armed" || tr.has("undone") || tr.has("lost") {
		t.Errorf("transaction says %q", txn)
	}
	if tr.read("host") == "" {
		t.Error("the host is undone by nobody: the test shows nothing")
	}
}

func TestKeeperOutlivesSignalsAndItsSession(t *testing.T) {
	tr := &trial{place: newPlace(t), t: t, ended: make(chan struct{})}
	tr.cmd = exec.Command("/proc/self/exe", string(tr.place), "patient")
	tr.cmd.Env = append(os.Environ(), partVar+"=leader")
	tr.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	tr.start()
	leader := tr.cmd.Process.Pid
	if sid, err := unix.Getsid(tr.keeper); err != nil || sid != tr.keeper {
		t.Errorf("the keeper is in session %d (%v), want its own", sid, err)
	}
	for _, s := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTSTP} {
		tr.signal(tr.keeper, s)
	}
	// The leader's death ends the applier, which is in its process group, as a
	// logout does: the keeper must still be there to notice.
	tr.signal(-leader, unix.SIGKILL)
	tr.undone(ApplierDied)
}

func TestReleasedKeeperEndsQuietly(t *testing.T) {
	for _, order := range []string{"commit", "vanish"} {
		t.Run(order, func(t *testing.T) {
			tr := begin(t, "patient")
			if order == "vanish" {
				// Release and death reach the keeper at once: it gets no time before.
				tr.signal(tr.keeper, unix.SIGSTOP)
			}
			tr.order(order)
			<-tr.ended
			_ = unix.Kill(tr.keeper, unix.SIGCONT)
			eventually(t, "the keeper ends", func() bool { return !alive(tr.keeper) })
			if tr.has("undone") || tr.has("settled") || tr.read("host") == "" {
				t.Error("what was committed was undone")
			}
		})
	}
}

func TestReleaseWithoutAVerdictUndoes(t *testing.T) {
	tr := begin(t, "patient")
	tr.order("forget")
	tr.undone(Undecided)
}

func TestHardBreakIsUndoneByTheApplier(t *testing.T) {
	tr := begin(t, "patient")
	if err := tr.leave("cut", ""); err != nil {
		t.Fatal(err)
	}
	<-tr.ended
	if code := tr.cmd.ProcessState.ExitCode(); code != 0 || tr.read("broken") != "connect: no route to host" {
		t.Errorf("the applier was told %q and ended with %d", tr.read("broken"), code)
	}
	eventually(t, "the keeper ends", func() bool { return !alive(tr.keeper) })
	if tr.has("undone") || tr.read("host") != "" {
		t.Error("both undid, or none")
	}
}

func TestHardBreakThatTheApplierIgnores(t *testing.T) {
	tr := begin(t, "deaf")
	if err := tr.leave("cut", ""); err != nil {
		t.Fatal(err)
	}
	tr.undone(Broken)
}

func TestUnconfirmedTrialEndsHoweverAliveItsApplierIs(t *testing.T) {
	tr := begin(t, "unconfirmed")
	tr.undone(Overdue)
}

func TestArmFails(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(p place, cfg *Config)
		says    string
	}{
		{"a program that is not there", func(p place, cfg *Config) { cfg.Exe = p.file("nowhere") }, "no such file"},
		{"a program that ends at once", func(_ place, cfg *Config) { cfg.Exe = "/bin/false" }, "ended at once"},
		{"a keeper that fails before it listens", func(p place, _ *Config) { _ = p.leave("stillborn", "") }, "ended at once"},
		{"a transaction file that is not there", func(p place, cfg *Config) { cfg.TxnPath = p.file("nowhere") }, "open transaction"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			cfg := Config{TxnPath: p.file("txn"), Args: []string{string(p)}, Env: os.Environ()}
			tt.prepare(p, &cfg)
			l, err := Arm(t.Context(), cfg)
			if err == nil {
				_ = l.Release("undo")
				t.Fatal("armed")
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Arm = %v, which does not say %q", err, tt.says)
			}
			if kids := children(t); len(kids) != 0 {
				t.Errorf("processes are left: %v", kids)
			}
		})
	}
}

func TestArmEndsWithItsContext(t *testing.T) {
	p := newPlace(t)
	ctx, cancel := context.WithCancel(t.Context())
	mute := p.file("mute")
	if err := os.WriteFile(mute, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	go func() {
		for len(children(t)) == 0 && t.Context().Err() == nil {
			runtime.Gosched()
		}
		cancel()
	}()
	if _, err := Arm(ctx, Config{TxnPath: p.file("txn"), Exe: mute}); !errors.Is(err, ErrNotArmed) {
		t.Errorf("Arm = %v, want ErrNotArmed", err)
	}
	if kids := children(t); len(kids) != 0 {
		t.Errorf("processes are left: %v", kids)
	}
}

// children lists the live children of this process.
func children(t *testing.T) (pids []string) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		pids = append(pids, words(string(b))...)
	}
	return pids
}
