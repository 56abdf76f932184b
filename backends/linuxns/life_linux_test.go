package linuxns

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/cgroup"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestViewIsFreshWhenNothingLivesInIt(t *testing.T) {
	dir := base(t)
	e := newEnv(t)
	if got := e.must("cat", dir+"/file"); got != "host\n" {
		t.Fatalf("got %q", got)
	}
	e.sh("ls " + dir + "/later") // a failed lookup stays failed in a mounted overlay
	write(t, dir+"/tmp", "replaced\n")
	if err := os.Rename(dir+"/tmp", dir+"/file"); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/later", "later\n")
	if got := e.must("cat", dir+"/file", dir+"/later"); got != "replaced\nlater\n" {
		t.Errorf("got %q", got)
	}
}

func TestRebuildKeepsTheNetworkAndRun(t *testing.T) {
	e := newEnv(t)
	script := "ip link; ip address; ip route show table all; ip rule; sysctl -a 2>/dev/null | grep ipv4.conf.lo; ls -l /run/mine"
	e.must("sh", "-c", "set -e; echo x > /run/mine; ip link add nsb0 type veth peer name nsb1; ip address add 192.0.2.9/24 dev nsb0; ip link set nsb0 up; ip route add 198.51.100.0/24 dev nsb0 table 77; ip rule add fwmark 7 lookup 77; sysctl -qw net.ipv4.conf.lo.forwarding=1")
	before := e.must("sh", "-c", script)
	views := map[string]bool{}
	for range 3 {
		if after := e.must("sh", "-c", script); after != before {
			t.Fatalf("was\n%s\nis\n%s", before, after)
		}
		views[e.must("stat", "-c", "%z", "/dev/null")] = true // made with each view
	}
	if len(views) != 3 {
		t.Errorf("not built again: %v", views)
	}
}

// A command whose view dies under it is never run again, however early that was:
// it may have done half of its work.
func TestInitKilledUnderACommand(t *testing.T) {
	dir := base(t)
	e := newEnv(t)
	for i := range 5 {
		c, out := e.client(t, "sh", "-c", "echo x >> "+dir+"/runs; echo ready; exec sleep 1000")
		line(t, out, "ready")
		if err := syscall.Kill(e.status().Init, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if c.Wait(); c.ProcessState.ExitCode() != 125 {
			t.Errorf("the client ended with %v", c.ProcessState)
		}
		if got := e.must("cat", dir+"/runs"); got != strings.Repeat("x\n", i+1) {
			t.Fatalf("ran %q", got)
		}
	}
}

func TestHolderKilled(t *testing.T) {
	dir := base(t)
	e := newEnv(t)
	e.must("sh", "-c", "set -e; echo kept > "+dir+"/file; ip link add nsb0 type veth peer name nsb1")
	e.detach("sleep", "1000")
	old := e.status()
	syscall.Kill(old.Holder, syscall.SIGKILL)
	until(t, "the view has ended", func() bool { return syscall.Kill(old.Init, 0) == syscall.ESRCH })
	if s := e.status(); s.Holder != 0 || s.Init != 0 || !s.TwinLost {
		t.Errorf("status without holder: %+v", s)
	}
	if out := e.must("sh", "-c", "cat "+dir+"/file; ls /sys/class/net"); !strings.HasPrefix(out, "kept\n") || strings.Contains(out, "nsb0") {
		t.Errorf("got %q", out)
	}
	if s := e.status(); s.Holder == old.Holder || !s.TwinLost {
		t.Errorf("status of the next holder: %+v", s)
	}
	if err := e.view().Reset(t.Context(), backends.Reset{Network: true}); err != nil {
		t.Fatal(err)
	}
	if s := e.status(); s.TwinLost {
		t.Error("still lost after the network was reset")
	}
	if out := e.must("cat", dir+"/file"); out != "kept\n" {
		t.Errorf("a reset of the network took %s: %q", dir, out)
	}
}

// TestDyingHolderIsNone: what is asked while the sockets of a killed holder still
// take connections is answered as if there were none, or by the next.
func TestDyingHolderIsNone(t *testing.T) {
	e := newEnv(t)
	asks := []struct {
		name string
		ask  func() error
	}{
		{"status", func() error { _, err := e.view().Status(t.Context()); return err }},
		{"stop", func() error { return e.view().Stop(t.Context()) }},
		{"freeze", func() error {
			thaw, err := e.view().Freeze(t.Context())
			if err == nil {
				err = thaw()
			}
			return err
		}},
		{"relay", func() error { return e.view().Relay(t.Context(), 7) }},
		{"canary", func() error { _, err := e.view().Canary(t.Context(), backends.InJail, shell("true")); return err }},
		{"exec", func() error { e.must("true"); return nil }},
	}
	for _, a := range asks {
		for range 3 {
			e.must("true")
			syscall.Kill(e.status().Holder, syscall.SIGKILL)
			if err := a.ask(); err != nil {
				t.Errorf("%s: %v", a.name, err)
			}
		}
	}
}

// Eight in a row, at once, over a daemon: no start may mount a layer that the
// view before it still has.
func TestHolderKilledAgainAndAgain(t *testing.T) {
	e := newEnv(t)
	for range 4 {
		e.detach("sh", "-c", "while :; do echo x >> /var/log/nsb-test; done")
		syscall.Kill(e.status().Holder, syscall.SIGKILL)
	}
	e.must("true")
	if n := len(e.status().Processes); n != 0 {
		t.Errorf("%d processes of an earlier view", n)
	}
}

func TestSeveralEnvironments(t *testing.T) {
	dir := base(t)
	var all []*env
	root := t.TempDir()
	for range 4 {
		e := plainEnv(t, root)
		e.create()
		all = append(all, e)
	}
	var wg sync.WaitGroup
	for _, e := range all {
		wg.Go(func() {
			for range 3 {
				status, out := e.sh("echo " + e.spec.ID + " >> " + dir + "/file; sort -u " + dir + "/file")
				if want := e.spec.ID + "\nhost\n"; status != 0 || out != want && out != "host\n"+e.spec.ID+"\n" {
					t.Errorf("status %d, %q", status, out)
				}
			}
		})
	}
	wg.Wait()
}

func TestManyCommandsAtOnce(t *testing.T) {
	e := newEnv(t)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			if status, out := e.sh("exit 3"); status != 3 {
				t.Errorf("status %d: %s", status, out)
			}
		})
	}
	wg.Wait()
}

func TestFreeze(t *testing.T) {
	e := newEnv(t)
	e.detach("sh", "-c", "while :; do date +%s%N > /run/now; done")
	e.must("sh", "-c", "until test -s /run/now; do :; done")
	thaw, err := e.view().Freeze(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := e.status().Processes[0].PID
	frozen := func() bool {
		b, err := os.ReadFile("/proc/" + itoa(pid) + "/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		g, err := cgroup.Open(e.spec.ID)
		if err != nil || !g.Unified() {
			t.Fatalf("cgroup of %s: %v", b, err)
		}
		return g.Frozen("view")
	}
	if !frozen() {
		t.Error("not frozen")
	}
	if _, err := e.view().Changes(t.Context()); err != nil { // what a freeze is for
		t.Error(err)
	}
	done := make(chan int)
	go func() { status, _ := e.sh("exit 4"); done <- status }()
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got != 4 {
		t.Errorf("a command that came meanwhile ended with %d", got)
	}
	if frozen() {
		t.Error("still frozen")
	}
}

func TestDiscardLeavesNothing(t *testing.T) {
	e := newEnv(t)
	e.detach("sh", "-c", "ip netns add x; while :; do sleep 1; done")
	s := e.status()
	tomb := filepath.Join(e.spec.StateRoot, "tomb")
	if err := os.Rename(e.spec.Dir, tomb); err != nil {
		t.Fatal(err)
	}
	e.spec.Dir = tomb
	if err := e.view().Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{s.Holder, s.Init, s.Processes[0].PID} {
		if err := unix.Kill(pid, 0); err != unix.ESRCH {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	if exists(tomb) {
		t.Error("the directory is still there")
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(b), e.spec.StateRoot) {
		t.Errorf("mounts are left: %v", err)
	}
	for _, r := range e.made.Resources {
		if err := e.b.Sweep(t.Context(), r); err != nil { // nothing to do is no error
			t.Error(err)
		}
	}
	if err := e.view().Discard(t.Context()); err != nil { // again, as after a crash
		t.Error(err)
	}
}

func TestCreateThatFailsLeavesNothing(t *testing.T) {
	nstest.Require(t, nstest.Root)
	e := plainEnv(t, t.TempDir(), func(s *backends.Spec) { s.Mode = "nonsense" })
	if _, err := e.b.Create(t.Context(), e.spec); err == nil || !strings.Contains(err.Error(), `unknown isolation mode "nonsense"`) {
		t.Fatalf("error %v", err)
	}
	left, err := os.ReadDir(e.spec.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// The kernel lets two overlays share an upper and corrupts it. With an index it
// refuses, which tells whether anything of a stopped view still has it.
func TestStoppedViewLetsGoOfItsLayers(t *testing.T) {
	dir := base(t)
	e := newEnv(t)
	layer := filepath.Dir(e.upper(""))
	for i := range 15 {
		e.must("true")
		if i == 0 { // with something alive in it, or it may have ended by now
			e.detach("sleep", "1000")
			if _, err := index(layer, dir); !errors.Is(err, unix.EBUSY) {
				t.Fatalf("a second overlay over a mounted layer: %v", err)
			}
		}
		if err := e.view().Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		fd, err := index(layer, dir)
		if err != nil {
			t.Fatalf("after stop %d the layer is still in use: %v", i, err)
		}
		unix.Close(fd)
	}
}

// index makes a detached overlay over the layer that does not share it.
func index(layer, lower string) (int, error) {
	ctx, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctx)
	for _, o := range [][2]string{{"lowerdir", lower}, {"upperdir", layer + "/upper"}, {"workdir", layer + "/work"}, {"index", "on"}} {
		if err := unix.FsconfigSetString(ctx, o[0], o[1]); err != nil {
			return -1, err
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, err
	}
	return unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, 0)
}
