package linuxns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

var worlds = []backends.Where{backends.InCandidate, backends.InControl, backends.InCut, backends.InJail}

func shell(script string) backends.Probe {
	return backends.Probe{
		Argv: []string{"/bin/sh", "-c", script}, Cwd: "/", Timeout: 20 * time.Second,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
}

// canary runs a probe that must at least come to an end.
func (e *env) canary(where backends.Where, p backends.Probe) backends.Outcome {
	e.t.Helper()
	out, err := e.view().Canary(e.t.Context(), where, p)
	if err != nil {
		e.t.Error(err)
	}
	return out
}

// alive counts the processes of the machine whose command line holds the text.
func alive(text string) (n int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		if b, _ := os.ReadFile(line); strings.Contains(string(b), text) {
			n++
		}
	}
	return n
}

func TestCanaryInEveryWorld(t *testing.T) {
	e := newEnv(t)
	if status, out := e.run("sh", "-c", "echo staged >/etc/canary-file"); status != 0 {
		t.Fatal(out)
	}
	for _, where := range worlds {
		want := ""
		if where == backends.InCandidate {
			want = `staged\x0a`
		}
		if got := e.canary(where, shell("cat /etc/canary-file 2>/dev/null; true")); !got.OK() || got.Output != want {
			t.Errorf("in %s: %+v", where, got)
		}
	}
	s, err := e.view().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Processes) != 0 {
		t.Errorf("canaries count as inhabitants: %+v", s.Processes)
	}
}

// A daemon started in the view answers its candidate: on its loopback, by a
// socket below /run, and by a file it keeps.
func TestCandidateReachesTheViewsDaemons(t *testing.T) {
	nstest.Require(t, nstest.Tool("python3"))
	e := newEnv(t)
	const daemon = `import socket, os, threading
t = socket.create_server(("127.0.0.1", 8099))
u = socket.socket(socket.AF_UNIX); u.bind("/run/canary.sock"); u.listen()
os.chmod("/run/canary.sock", 0o666)
open("/run/canary.ready", "w").close()
while True: u.accept()[0].send(b"hello")`
	status, out := e.run("sh", "-c", "python3 -c '"+daemon+"' >/dev/null 2>&1 & while ! test -e /run/canary.ready; do sleep 0.05; done")
	if status != 0 {
		t.Fatal(out)
	}
	const client = `import socket; u = socket.socket(socket.AF_UNIX); u.connect("/run/canary.sock"); print(u.recv(9))`
	for _, where := range worlds {
		in := where == backends.InCandidate
		if got := e.canary(where, backends.Probe{Dial: "127.0.0.1:8099", Timeout: 5 * time.Second}); got.OK() != in {
			t.Errorf("loopback in %s: %+v", where, got)
		}
		p := shell("python3 -c '" + client + "'")
		p.UID, p.GID = 1000, 1000
		p.Env = os.Environ()
		if where == backends.InJail {
			continue // the same path on the host is nobody's
		}
		if got := e.canary(where, p); got.OK() != in {
			t.Errorf("socket in %s: %+v", where, got)
		}
	}
}

// The view's /run is where its resolver and its sockets are.
func TestCandidateDoesNotWriteTheViewsRun(t *testing.T) {
	for _, mode := range []string{"shifted", "caps"} {
		t.Run(mode, func(t *testing.T) {
			e := newEnv(t, func(s *backends.Spec) { s.Mode = mode })
			if status, out := e.run("sh", "-c", "echo view >/run/mark; mkdir /run/dir"); status != 0 {
				t.Fatal(out)
			}
			got := e.canary(backends.InCandidate, shell("cat /run/mark; echo x >/run/mark; rm -f /run/mark; touch /run/dir/x; touch /run/lock/x && echo locked"))
			if !strings.HasPrefix(got.Output, `view\x0a`) || !strings.HasSuffix(got.Output, `locked\x0a`) {
				t.Errorf("candidate: %+v", got)
			}
			if _, out := e.run("sh", "-c", "cat /run/mark; ls /run/dir /run/lock"); out != "view\n/run/dir:\n\n/run/lock:\n" {
				t.Errorf("the view's /run after it: %q", out)
			}
		})
	}
}

// A program with file capabilities must run without them, and ping by the
// twin's permission; in the jail the host's own setting decides.
func TestCanaryPings(t *testing.T) {
	nstest.Require(t, nstest.Tool("ping"), nstest.Tool("setcap"))
	modes(t, func(t *testing.T, e *env) {
		e.must("sh", "-c", "cp /bin/ping /usr/local/bin/canary-ping && setcap cap_net_raw=ep /usr/local/bin/canary-ping")
		for _, uid := range []uint32{0, 1000} {
			p := shell("canary-ping -c1 -W2 127.0.0.1 >/dev/null")
			p.UID, p.GID = uid, uid
			if got := e.canary(backends.InCandidate, p); !got.OK() {
				t.Errorf("uid %d in candidate: %+v", uid, got)
			}
			p.Argv = []string{"ping", "-c1", "-W2", "127.0.0.1"}
			if got := e.canary(backends.InControl, p); !got.OK() {
				t.Errorf("uid %d in control: %+v", uid, got)
			}
		}
	})
}

// Whoever waits for a canary may be killed, and the canary must go with it.
func TestCanaryEndsWithItsCaller(t *testing.T) {
	e := newEnv(t)
	for i, where := range worlds {
		token := fmt.Sprintf("700.%d%d", os.Getpid(), i)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := e.view().Canary(ctx, where, shell("sleep "+token+" & sleep "+token))
			done <- err
		}()
		until(t, "canary runs", func() bool { return alive("sleep\x00"+token) == 2 })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("in %s: %v", where, err)
		}
		until(t, "canary is gone", func() bool { return alive(token) == 0 })
	}
}

func TestCanaryEndsWithTheHolder(t *testing.T) {
	e := newEnv(t)
	s, err := e.view().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	token := fmt.Sprintf("701.%d", os.Getpid())
	done := make(chan error, len(worlds))
	for _, where := range worlds {
		go func() {
			_, err := e.view().Canary(t.Context(), where, shell("sleep "+token))
			done <- err
		}()
	}
	until(t, "canaries run", func() bool { return alive("sleep\x00"+token) == len(worlds) })
	if err := unix.Kill(s.Holder, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range worlds {
		if err := <-done; err == nil {
			t.Error("a canary of a dead holder has an outcome")
		}
	}
	until(t, "canaries are gone", func() bool { return alive(token) == 0 })
}

// A command that arrives while nothing lives in the view makes it be built
// again, but not from under a candidate.
func TestCommandsSpareCandidates(t *testing.T) {
	e := newEnv(t)
	done := make(chan backends.Outcome, 1)
	token := fmt.Sprintf("703.%d", os.Getpid())
	p := shell("sleep " + token)
	p.Timeout = 2 * time.Second
	go func() { done <- e.canary(backends.InCandidate, p) }()
	until(t, "candidate runs", func() bool { return alive("sleep\x00"+token) == 1 })
	if status, out := e.run("true"); status != 0 {
		t.Errorf("command beside a candidate: %d %s", status, out)
	}
	if got := <-done; !got.TimedOut {
		t.Errorf("candidate beside a command: %+v", got)
	}
}

// Stopping the view ends what lies on its layers, and nothing else.
func TestStopEndsCandidates(t *testing.T) {
	e := newEnv(t)
	token := fmt.Sprintf("702.%d", os.Getpid())
	done := make(chan error, 1)
	go func() {
		_, err := e.view().Canary(t.Context(), backends.InCandidate, shell("sleep "+token))
		done <- err
	}()
	until(t, "candidate runs", func() bool { return alive("sleep\x00"+token) == 1 })
	if err := e.view().Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := alive(token); n != 0 {
		t.Errorf("%d processes of the candidate outlived the stop", n)
	}
	if err := <-done; err == nil {
		t.Error("a candidate whose view was stopped has an outcome")
	}
	if got := e.canary(backends.InCandidate, shell("true")); !got.OK() {
		t.Errorf("candidate after a stop: %+v", got)
	}
}

// A canary's files are in memory, so there must be an end to them.
func TestCanaryCannotFillMemory(t *testing.T) {
	e := newEnv(t)
	got := e.canary(backends.InJail, shell("head -c 600000000 /dev/zero >/var/tmp/full"))
	if got.OK() || !strings.Contains(got.Output, "No space left on device") {
		t.Errorf("600 MB: %+v", got)
	}
}

func TestCanariesLeaveNoGroup(t *testing.T) {
	nstest.Require(t, nstest.Cgroup2)
	e := newEnv(t)
	for _, where := range worlds {
		e.canary(where, shell("sleep 600 & true"))
	}
	root, err := cgroup2Mount()
	if err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(root, "netsandbox", e.spec.ID, "canary", "*", "cgroup.procs"))
	if left != nil {
		t.Errorf("left: %v", left)
	}
}

func TestCanaryOfNoWorld(t *testing.T) {
	e := newEnv(t)
	if _, err := e.view().Canary(t.Context(), "elsewhere", shell("true")); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("got %v", err)
	}
}
