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

// BenchmarkExec runs /bin/true in a view that a daemon keeps alive, as a canary of
// it, and in another view that has to be built again, under bubblewrap, under
// unshare and plainly. The canary is called as check does it, from a process that
// is there already.
func BenchmarkExec(b *testing.B) {
	x := newBench(b)
	x.create("again")
	x.run("exec", "bench", "--detach", "--", "sleep", "infinity")
	view := x.view()
	canary := backends.Probe{Argv: []string{"/bin/true"}, Cwd: "/", Timeout: time.Minute}
	for range 3 { // the first commands of a view find nothing in memory
		x.call(x.bin, "exec", "bench", "--", "/bin/true")
	}
	var s versus.Series
	for b.Loop() {
		for range 3 {
			s.Time("exec", func() { x.call(x.bin, "exec", "bench", "--", "/bin/true") })
			s.Time("bwrap", func() { x.call(bwrap...) })
			s.Time("unshare", func() { x.call("unshare", "-mpnf", "/bin/true") })
			s.Time("plain", func() { x.call("/bin/true") })
		}
		s.Time("canary", func() {
			if out, err := view.Canary(b.Context(), backends.InCandidate, canary); err != nil || !out.OK() {
				b.Fatalf("canary: %+v, %v", out, err)
			}
		})
		x.endView("again")
		s.Time("rebuild", func() { x.call(x.bin, "exec", "again", "--", "/bin/true") })
	}
	s.Report(b, "exec/bwrap", "exec/unshare", "rebuild/bwrap", "canary/bwrap")
	x.discard("again")
	pss, private := x.memory("bench")
	b.ReportMetric(pss, "idle-MB")
	b.ReportMetric(private, "idle-private-MB")
}

// BenchmarkMany has ten environments idle at once, a hundred with BENCH_FULL, and
// says what each of them keeps in memory and how long it took to make.
func BenchmarkMany(b *testing.B) {
	x := newBenchOn(b, (*testing.B).TempDir)
	n := 10
	if os.Getenv("BENCH_FULL") != "" {
		n = 100
	}
	var s versus.Series
	for b.Loop() {
		var names []string
		for i := range n {
			name := fmt.Sprintf("bench%d", i)
			names = append(names, name)
			s.Time("create", func() { x.create(name) })
			x.run("exec", name, "--detach", "--", "sleep", "infinity")
		}
		pss, private := x.memory(names...)
		s.Add("each-MB", pss/float64(n))
		s.Add("each-private-MB", private/float64(n))
		for _, name := range names {
			x.discard(name)
		}
	}
	s.Report(b)
	b.ReportMetric(float64(n), "environments")
}

// bench is one environment called bench, and the program as it is installed: a
// test binary initialises more.
type bench struct {
	b                *testing.B
	ns               *nstest.NS
	bin              string
	dir, state, base string
	made             map[string]bool // environments; those that are left are discarded
}

// newBench has its environment, on the machine's own disk.
func newBench(b *testing.B) *bench {
	x := newBenchOn(b, (*testing.B).TempDir)
	x.create("bench")
	return x
}

// newBenchOn has no environment yet. The disk is made in a network and mount
// namespace of the benchmark's own.
func newBenchOn(b *testing.B, disk func(*testing.B) string) *bench {
	b.Helper()
	ns := nstest.New(b, nstest.Root, nstest.Overlay, nstest.TUN, nstest.Tool("bwrap"), nstest.Tool("unshare"))
	dir := disk(b)
	x := &bench{
		b: b, ns: ns, dir: dir, bin: filepath.Join(b.TempDir(), "netsandbox"),
		state: filepath.Join(dir, "state"), base: filepath.Join(dir, "base"), made: map[string]bool{},
	}
	linked := filepath.Join(b.TempDir(), "netsandbox")
	build := exec.Command("go", "build", "-trimpath", "-o", linked, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	// The linker writes through a mapping, a page at a time, and so the file lies in
	// the page cache; mapping and unmapping it for each command then takes half a
	// millisecond more than that of a file which was installed, or read from the
	// disk, and lies there in large folios (ext4 has them since Linux 6.16).
	x.call("install", "-m", "755", linked, x.bin)
	b.Setenv("NETSANDBOX_STATE_DIR", x.state)
	b.Cleanup(func() {
		for name := range x.made {
			x.discard(name)
		}
	})
	if err := os.Mkdir(x.base, 0o755); err != nil {
		b.Fatal(err)
	}
	return x
}

func (x *bench) create(name string, flags ...string) {
	x.b.Helper()
	x.run(append([]string{"create", name, "--base", x.base, "--capture-connections=false"}, flags...)...)
	x.made[name] = true
}

func (x *bench) discard(name string) {
	x.b.Helper()
	delete(x.made, name)
	x.run("discard", name, "--yes")
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

func (x *bench) status(name string) report.Status {
	x.b.Helper()
	var s report.Status
	if err := json.Unmarshal(x.run("--json", "status", name), &s); err != nil {
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

// endView kills a view's first process, if there is one, and waits for it to be
// gone. A view ends with its last command, but not at once.
func (x *bench) endView(name string) {
	x.b.Helper()
	pid := x.status(name).View.Init
	if pid == 0 {
		return
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		x.b.Fatal(err)
	}
	x.until("the view's first process is gone", func() bool { return syscall.Kill(pid, 0) != nil })
}

// memory is what the processes of environments keep in memory once they are idle,
// in MB: shared pages counted by share, and without shared pages. The difference
// is the program's file, which is there once for any number of environments.
func (x *bench) memory(names ...string) (pss, private float64) {
	x.b.Helper()
	var pids []int
	for _, name := range names {
		holder := x.status(name).View.Holder
		pids = append(append(pids, holder), children(holder)...)
	}
	pss = -1
	// The Go runtime gives freed memory back in the background.
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		var now, own float64
		for _, pid := range pids {
			shared, alone := memory(pid)
			now, own = now+shared, own+alone
		}
		if pss < 0 || now < pss {
			pss, private = now, own
		}
	}
	return pss, private
}

func memory(pid int) (pss, private float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, 0 // ended meanwhile
	}
	for line := range strings.Lines(string(text)) {
		var name string
		var kb float64
		if n, _ := fmt.Sscanf(line, "%s %f kB", &name, &kb); n != 2 {
			continue
		}
		switch name {
		case "Pss:":
			pss += kb / 1024
		case "Private_Clean:", "Private_Dirty:":
			private += kb / 1024
		}
	}
	return pss, private
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
