package canary

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// argv0 under which this test binary is PID 1 of a canary.
const argv0 = "canary-test-init"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == socketsArg {
		os.Exit(openSockets(os.Args[2:]))
	}
	if os.Args[0] == argv0 {
		if err := becomeInit(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	nstest.Main(m)
}

// becomeInit is what the builder does around a canary, less the view: the files
// are the host's.
func becomeInit() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	mode, err := harden.Lookup(harden.Caps)
	if err != nil {
		return err
	}
	if err := errors.Join(harden.ScopeAbstract(), Drop(), mode.Seccomp()); err != nil {
		return err
	}
	// As the view's init does: a probe of the same uid must not end us, nor reach into us.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	c, err := wire.New(3)
	if err != nil {
		return err
	}
	return Serve(c, mode)
}

// canary runs a probe as the builder would. Flags are namespaces besides pid
// and mount.
func canary(t *testing.T, p backends.Probe, flags uintptr) (backends.Outcome, error) {
	t.Helper()
	out, _, err := watchedCanary(t, p, flags, false)
	return out, err
}

func watchedCanary(t *testing.T, p backends.Probe, flags uintptr, watch bool) (backends.Outcome, Asked, error) {
	t.Helper()
	nstest.Require(t, nstest.Root)
	if p.Timeout == 0 {
		p.Timeout = 20 * time.Second
	}
	if p.Cwd == "" {
		p.Cwd = "/"
	}
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	f := os.NewFile(uintptr(theirs), "socket")
	c := exec.Command("/proc/self/exe")
	c.Args = []string{argv0}
	c.Env = []string{"LANG=C"}
	c.Stderr = os.Stderr
	c.ExtraFiles = []*os.File{f}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | flags}
	err = c.Start()
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, asked, err := Ask(ours, p, watch)
	if werr := c.Wait(); werr != nil && err == nil {
		t.Errorf("PID 1: %v", werr)
	}
	return out, asked, err
}

func sh(script string) backends.Probe {
	return backends.Probe{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=" + defaultPath}}
}

func TestEndings(t *testing.T) {
	notExec := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(notExec, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	as := func(uid uint32, p backends.Probe) backends.Probe {
		p.UID, p.GID = uid, uid
		return p
	}
	long := sh("exec sleep 600")
	long.Timeout = 300 * time.Millisecond
	nowhere := sh("true")
	nowhere.Cwd = "/nonexistent"
	for _, tt := range []struct {
		name  string
		probe backends.Probe
		want  backends.Outcome
	}{
		{"success", sh("true"), backends.Outcome{}},
		{"exit status", sh("exit 7"), backends.Outcome{Exit: 7}},
		{"signal", sh("kill -9 $$"), backends.Outcome{Exit: -1, Signal: 9}},
		{"both streams in order", sh("echo one; echo two >&2; echo three"), backends.Outcome{Output: `one\x0atwo\x0athree\x0a`}},
		{"control bytes are escaped", sh(`printf '\033[2J\\'`), backends.Outcome{Output: `\x1b[2J\x5c`}},
		{"standard input is empty", sh("cat; readlink /proc/self/fd/0"), backends.Outcome{Output: `/dev/null\x0a`}},
		{"stderr can be opened again", as(1000, sh("echo again >/dev/stderr")), backends.Outcome{Output: `again\x0a`}},
		{"caller's ids", func() backends.Probe {
			p := as(1000, sh("id -u; id -g; id -G"))
			p.Groups = []uint32{27, 100}
			return p
		}(), backends.Outcome{Output: `1000\x0a1000\x0a1000 27 100\x0a`}},
		{"found on the path", backends.Probe{Argv: []string{"true"}, Env: []string{"PATH=/nonexistent:/usr/bin"}}, backends.Outcome{}},
		{"not found", backends.Probe{Argv: []string{"no-such-program"}}, backends.Outcome{Exit: 127, Err: "no-such-program: not found"}},
		{"not executable", backends.Probe{Argv: []string{notExec}}, backends.Outcome{Exit: 126, Err: notExec + ": permission denied"}},
		{"no directory", nowhere, backends.Outcome{Exit: 125, Err: "working directory /nonexistent: no such file or directory"}},
		{"time limit", long, backends.Outcome{Exit: -1, TimedOut: true}},
		{"arguments need not be text", backends.Probe{Argv: []string{"/usr/bin/printf", "%s", "a\xff"}}, backends.Outcome{Output: `a\xff`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := canary(t, tt.probe, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got.Took <= 0 {
				t.Errorf("took %v", got.Took)
			}
			got.Took = 0
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if got.OK() != (tt.want.Exit == 0) {
				t.Errorf("OK() = %v for %+v", got.OK(), got)
			}
		})
	}
}

func TestFloodIsCutAndComesToItsEnd(t *testing.T) {
	got, err := canary(t, sh("head -c 50000000 /dev/zero | tr '\\0' x; echo; exit 3"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.Exit != 3 || len(got.Output) != maxOutput {
		t.Errorf("exit %d with %d bytes, want 3 with %d", got.Exit, len(got.Output), maxOutput)
	}
}

func TestEndlessFloodEndsAtTheTimeLimit(t *testing.T) {
	p := sh("exec yes")
	p.Timeout = 500 * time.Millisecond
	got, err := canary(t, p, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !got.TimedOut || len(got.Output) == 0 || got.Took > 5*time.Second {
		t.Errorf("got %+v", got)
	}
}

// Children hold the output open, are in sessions of their own, and would live
// for ten minutes.
func TestChildrenLeftBehindDie(t *testing.T) {
	token := fmt.Sprintf("600.%d", os.Getpid())
	got, err := canary(t, sh("setsid sleep "+token+" & (sleep "+token+" &) ; echo started"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if !got.OK() || got.Output != `started\x0a` || got.Took > 10*time.Second {
		t.Errorf("got %+v", got)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		if b, _ := os.ReadFile(line); strings.Contains(string(b), token) {
			t.Errorf("%s is still alive: %q", line, b)
		}
	}
}

// Uid 0 of a canary is the uid of its PID 1 and must still be powerless.
func TestRootHasNoCapability(t *testing.T) {
	got, err := canary(t, sh("grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|^Seccomp:' /proc/self/status | tr -d '\\t' | tr '\\n' ' '"), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := "CapPrm:0000000000000000 CapEff:0000000000000000 CapBnd:0000000000000000 CapAmb:0000000000000000 NoNewPrivs:1 Seccomp:2 "
	if got.Output != want {
		t.Errorf("got  %s\nwant %s", got.Output, want)
	}
}

func TestProbeCannotForgeTheAnswer(t *testing.T) {
	for _, script := range []string{
		`for fd in /proc/1/fd/*; do echo forged >"$fd"; done 2>/dev/null; exit 9`,
		`for fd in 3 4 5 6 7 8 9; do (echo forged >&$fd); done 2>/dev/null; exit 9`,
		`for s in 1 2 3 9 10 12 14 15 19 20; do kill -$s 1; done 2>/dev/null; exit 9`,
	} {
		got, err := canary(t, sh(script), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got.Exit != 9 {
			t.Errorf("%s: %+v", script, got)
		}
	}
}

func TestAbstractSocketOfTheHostIsRefused(t *testing.T) {
	name := fmt.Sprintf("@canary-test-%d", os.Getpid())
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nstest.Require(t, nstest.Tool("python3"))
	connect := func(name string) string {
		return "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0" + name[1:] + "')"
	}
	p := backends.Probe{Argv: []string{"/usr/bin/env", "python3", "-c", connect(name)}, Env: os.Environ()}
	got, err := canary(t, p, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.OK() || !strings.Contains(got.Output, "PermissionError") {
		t.Errorf("got %+v", got)
	}
}

func TestNoAnswerWhenPID1Ends(t *testing.T) {
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	unix.Close(theirs)
	if _, _, err := Ask(ours, sh("true"), false); !errors.Is(err, ErrNoReport) {
		t.Errorf("got %v, want %v", err, ErrNoReport)
	}
}
