package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// BenchmarkExec runs /bin/true in a live view, in a view that has to be built
// again, under bubblewrap and under unshare, in turn in each round, so that a
// busy machine slows all of them. Medians; the ratios are what docs/benchmarks.md
// is about.
func BenchmarkExec(b *testing.B) {
	bench := newBench(b)
	took := map[string][]time.Duration{}
	for b.Loop() {
		// Only what lives in a view keeps it; an empty one is built again, so that a
		// command sees the host's files of now.
		bench.run("exec", "bench", "--detach", "--", "sleep", "infinity")
		for _, c := range []struct {
			name string
			argv []string
		}{
			{"exec", []string{bench.bin, "exec", "bench", "--", "/bin/true"}},
			{"bwrap", strings.Fields("bwrap --bind / / --dev /dev --proc /proc --unshare-net --unshare-pid /bin/true")},
			{"unshare", strings.Fields("unshare -mpnf /bin/true")},
			{"plain", []string{"/bin/true"}},
		} {
			took[c.name] = append(took[c.name], bench.time(c.argv))
		}
		bench.endView()
		took["rebuild"] = append(took["rebuild"], bench.time([]string{bench.bin, "exec", "bench", "--", "/bin/true"}))
	}
	median := func(name string) float64 {
		slices.Sort(took[name])
		return float64(took[name][len(took[name])/2].Microseconds()) / 1000
	}
	for name := range took {
		b.ReportMetric(median(name), name+"-ms")
	}
	b.ReportMetric(median("exec")/median("bwrap"), "exec/bwrap")
	b.ReportMetric(median("exec")/median("unshare"), "exec/unshare")
	b.ReportMetric(median("rebuild")/median("bwrap"), "rebuild/bwrap")
	b.ReportMetric(bench.memory(), "idle-MB")
	b.ReportMetric(0, "ns/op")
}

// bench is one environment, and the program as it is installed: a test binary
// initialises more.
type bench struct {
	b   *testing.B
	bin string
}

func newBench(b *testing.B) *bench {
	nstest.New(b, nstest.Root, nstest.Overlay, nstest.TUN, nstest.Tool("bwrap"), nstest.Tool("unshare"))
	dir := b.TempDir()
	x := &bench{b: b, bin: filepath.Join(dir, "netsandbox")}
	build := exec.Command("go", "build", "-trimpath", "-o", x.bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	b.Setenv("NETSANDBOX_STATE_DIR", filepath.Join(dir, "state"))
	base := filepath.Join(dir, "base")
	if err := os.Mkdir(base, 0o755); err != nil {
		b.Fatal(err)
	}
	x.run("create", "bench", "--base", base, "--capture-connections=false")
	b.Cleanup(func() { x.run("discard", "bench", "--yes") })
	return x
}

func (x *bench) run(args ...string) []byte {
	x.b.Helper()
	out, err := exec.Command(x.bin, args...).Output()
	if err != nil {
		x.b.Fatalf("%v: %v", args, err)
	}
	return out
}

func (x *bench) time(argv []string) time.Duration {
	x.b.Helper()
	begun := time.Now()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		x.b.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return time.Since(begun)
}

func (x *bench) status() report.Status {
	x.b.Helper()
	var s report.Status
	if err := json.Unmarshal(x.run("--json", "status", "bench"), &s); err != nil {
		x.b.Fatal(err)
	}
	return s
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
	for end := time.Now().Add(5 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.b.Fatalf("process %d lives on", pid)
		}
	}
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
// relay.
func children(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range strings.Fields(string(text)) {
		var child int
		if n, _ := fmt.Sscan(f, &child); n == 1 {
			pids = append(pids, child)
		}
	}
	return pids
}
