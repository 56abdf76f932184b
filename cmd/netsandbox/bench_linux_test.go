package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/versus"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// bwrap is what exec is held against: with the namespaces that a view has. The
// bubblewrap of Debian 12 has no overlays yet, so it gets the cheaper bind.
var bwrap = strings.Fields("bwrap --bind / / --dev /dev --proc /proc --unshare-net --unshare-pid /bin/true")

// BenchmarkExec runs /bin/true in a live view, in a view that has to be built
// again, as a canary, under bubblewrap, under unshare and plainly. The canary is
// called as check does it, from a process that is there already.
func BenchmarkExec(b *testing.B) {
	x := newBench(b)
	view := x.view()
	canary := backends.Probe{Argv: []string{"/bin/true"}, Cwd: "/", Timeout: time.Minute}
	var s versus.Series
	for b.Loop() {
		// Only what lives in a view keeps it; an empty one is built again, so that a
		// command sees the host's files of now.
		x.run("exec", "bench", "--detach", "--", "sleep", "infinity")
		s.Time("exec", func() { x.call(x.bin, "exec", "bench", "--", "/bin/true") })
		s.Time("bwrap", func() { x.call(bwrap...) })
		s.Time("unshare", func() { x.call("unshare", "-mpnf", "/bin/true") })
		s.Time("plain", func() { x.call("/bin/true") })
		s.Time("canary", func() {
			if out, err := view.Canary(b.Context(), backends.InCandidate, canary); err != nil || !out.OK() {
				b.Fatalf("canary: %+v, %v", out, err)
			}
		})
		x.endView()
		s.Time("rebuild", func() { x.call(x.bin, "exec", "bench", "--", "/bin/true") })
	}
	s.Report(b, "exec/bwrap", "exec/unshare", "rebuild/bwrap", "canary/bwrap")
	b.ReportMetric(x.memory(), "idle-MB")
}

// bench is one environment, and the program as it is installed: a test binary
// initialises more.
type bench struct {
	b              *testing.B
	bin            string
	state, base, w string // w is the test's own directory
}

func newBench(b *testing.B, create ...string) *bench {
	nstest.New(b, nstest.Root, nstest.Overlay, nstest.TUN, nstest.Tool("bwrap"), nstest.Tool("unshare"))
	dir := b.TempDir()
	x := &bench{b: b, w: dir, bin: filepath.Join(dir, "netsandbox"), state: filepath.Join(dir, "state"), base: filepath.Join(dir, "base")}
	build := exec.Command("go", "build", "-trimpath", "-o", x.bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	b.Setenv("NETSANDBOX_STATE_DIR", x.state)
	if err := os.Mkdir(x.base, 0o755); err != nil {
		b.Fatal(err)
	}
	x.run(append([]string{"create", "bench", "--base", x.base, "--capture-connections=false"}, create...)...)
	b.Cleanup(func() { x.run("discard", "bench", "--yes") })
	return x
}

// view is the environment as the workflow sees it.
func (x *bench) view() backends.View {
	x.b.Helper()
	text, err := os.ReadFile(filepath.Join(x.state, "envs", "bench", "spec.json"))
	if err != nil {
		x.b.Fatal(err)
	}
	var spec backends.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		x.b.Fatal(err)
	}
	return linuxns.New().Open(spec)
}

// run runs a verb.
func (x *bench) run(args ...string) []byte {
	x.b.Helper()
	return x.exits(0, args...)
}

// exits runs a verb that is to end with a code.
func (x *bench) exits(code int, args ...string) []byte {
	x.b.Helper()
	cmd := exec.Command(x.bin, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil && !errors.As(err, new(*exec.ExitError)) || cmd.ProcessState.ExitCode() != code {
		x.b.Fatalf("%v: %v, want exit status %d\n%s%s", args, err, code, out, said.String())
	}
	return out
}

// call runs a program.
func (x *bench) call(argv ...string) {
	x.b.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		x.b.Fatalf("%v: %v\n%s", argv, err, out)
	}
}

func (x *bench) status() report.Status {
	x.b.Helper()
	var s report.Status
	if err := json.Unmarshal(x.run("--json", "status", "bench"), &s); err != nil {
		x.b.Fatal(err)
	}
	return s
}

// until waits for something that no descriptor reports.
func (x *bench) until(what string, ok func() bool) {
	x.b.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.b.Fatalf("waited in vain until %s", what)
		}
	}
}

// endView kills the view's first process and waits for it to be gone.
func (x *bench) endView() {
	x.b.Helper()
	pid := x.status().View.Init
	if pid == 0 {
		x.b.Fatal("no view is built")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		x.b.Fatal(err)
	}
	x.until("the view's first process is gone", func() bool { return syscall.Kill(pid, 0) != nil })
}

// memory is what the processes of an idle environment keep resident, shared
// pages counted by share, in MB.
func (x *bench) memory() float64 {
	x.b.Helper()
	s := x.status()
	total := 0
	for _, pid := range append(children(s.View.Holder), s.View.Holder) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // ended meanwhile
		}
		for line := range strings.Lines(string(text)) {
			var kb int
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kb); n == 1 {
				total += kb
			}
		}
	}
	return float64(total) / 1024
}

// children lists the direct children of a holder: the view's first process, the
// relay. They may have been started by any of its threads.
func children(pid int) []int {
	var pids []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that ended has none
		for _, f := range strings.Fields(string(text)) {
			var child int
			if n, _ := fmt.Sscan(f, &child); n == 1 {
				pids = append(pids, child)
			}
		}
	}
	return pids
}
