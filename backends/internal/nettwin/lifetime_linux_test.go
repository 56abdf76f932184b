package nettwin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// dump is everything of a namespace that a twin could leave behind.
func dump(t *testing.T, ns int) string {
	t.Helper()
	n, err := observe(ns)
	must(t, err)
	s := snapshot{}
	n.describe(s)
	items, err := nft.Ruleset(ns, nil)
	must(t, err)
	for _, i := range items {
		s.add(KindNFT, i.Key, i.Text)
	}
	return fmt.Sprint(s)
}

// TestHostIsUntouched dumps the host before, during and after a life of a twin.
func TestHostIsUntouched(t *testing.T) {
	l := newLab(t, nstest.NFT)
	echo(t, l.server, "tcp", ":80")
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	host := int(l.host.NS().Fd())
	before := dump(t, host)
	l.mirror(t, Options{Relay: []uint16{7890}})
	l.seenAs(t, "tcp", "203.0.113.80:80")
	_, _ = l.ask("127.0.0.1:7890")
	if got := dump(t, host); got != before {
		t.Errorf("with a twin the host is\n%s\nbefore it was\n%s", got, before)
	}
	must(t, l.twin.Reset(t.Context()))
	must(t, l.twin.Close())
	if got := dump(t, host); got != before {
		t.Errorf("after the twin the host is\n%s\nbefore it was\n%s", got, before)
	}
}

// TestCloseLeavesNothing looks into the twin's namespace after its end.
func TestCloseLeavesNothing(t *testing.T) {
	l := newLab(t, nstest.NFT)
	ns, err := netns.New()
	must(t, err)
	defer ns.Close()
	must(t, l.host.Do(func() (err error) {
		l.twin, err = Mirror(t.Context(), int(ns.Fd()), Options{})
		return err
	}))
	pid := l.twin.Status().Relay
	must(t, l.twin.Close())
	must(t, l.twin.Close()) // once more is no error
	n, err := observe(int(ns.Fd()))
	must(t, err)
	if len(n.links) != 1 || n.links[0].Name != "lo" {
		t.Errorf("links left in the twin's namespace: %+v", n.links)
	}
	if items, err := nft.Ruleset(int(ns.Fd()), nil); err != nil || len(items) != 0 {
		t.Errorf("nftables left in the twin's namespace: %v, %v", items, err)
	}
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("relay %d: %v, want no such process", pid, err)
	}
}

// TestRelayDies kills the relay: the twin keeps its links and says what is wrong.
func TestRelayDies(t *testing.T) {
	l := newLab(t)
	l.mirror(t, Options{})
	must(t, unix.Kill(l.twin.Status().Relay, unix.SIGKILL))
	eventually(t, "status shows the death", func() bool { return l.twin.Status().Relay == 0 })
	if got := l.twin.Status().Err; !strings.Contains(got, "killed") {
		t.Errorf("status says %q", got)
	}
	if err := l.twin.AddRelay(80); !errors.Is(err, ErrRelayGone) {
		t.Errorf("adding a port: got %v, want %v", err, ErrRelayGone)
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("the inside changed nothing, but: %q", got)
	}
	must(t, l.twin.Reset(t.Context()))
	if l.twin.Status().Relay == 0 {
		t.Error("no relay after a reset")
	}
}

// holderEnv makes the test binary a process that holds a twin of the namespace
// it is started in and waits to be killed. Its value is what [holder] does first,
// as command lines inside.
const holderEnv = "NETTWIN_HOLDER"

func holder() error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	host, err := netns.Current()
	if err != nil {
		return err
	}
	keeper, err := lanes.Open(host, lanes.Options{})
	if err != nil {
		return err
	}
	w, err := Mirror(context.Background(), int(ns.Fd()), Options{Ways: keeper})
	if err != nil {
		return err
	}
	inside, err := netlab.New().Hold("inside", int(ns.Fd()))
	if err != nil {
		return err
	}
	for line := range strings.Lines(os.Getenv(holderEnv)) {
		if _, err := inside.Run(context.Background(), strings.Fields(line)...); err != nil {
			return err
		}
	}
	fmt.Println("relay", w.Status().Relay)
	for range 2 { // on demand, each: what the server sees
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
			return err
		}
		for _, addr := range []string{"203.0.113.80:80", "[2001:db8:80::80]:80"} {
			fmt.Println(see(inside, addr))
		}
	}
	select {}
}

// see asks for the path to a server, in one line.
func see(n *netlab.Node, addr string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := n.Dial(ctx, "tcp", addr)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	got, err := pathOf(c, "tcp", 10*time.Second)
	if err != nil {
		return err.Error()
	}
	return got
}

func TestParentIsKilled(t *testing.T) {
	l := newLab(t)
	before := dump(t, int(l.host.NS().Fd()))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), holderEnv+"=true")
	out, err := cmd.StdoutPipe()
	must(t, err)
	in, err := cmd.StdinPipe() // the end of it would be the holder's
	must(t, err)
	defer in.Close()
	must(t, l.host.Start(cmd))
	var relay int
	for s := bufio.NewScanner(out); relay == 0 && s.Scan(); {
		fmt.Sscanf(s.Text(), "relay %d", &relay)
	}
	if relay == 0 {
		t.Fatalf("holder did not start: %v", cmd.Wait())
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // "signal: killed"
	eventually(t, "the relay follows its parent", func() bool { return unix.Kill(relay, 0) == unix.ESRCH })
	if got := dump(t, int(l.host.NS().Fd())); got != before {
		t.Errorf("the host is\n%s\nbefore it was\n%s", got, before)
	}
}

// TestRelayIsConfined reads what the kernel says about the process.
func TestRelayIsConfined(t *testing.T) {
	l := newLab(t)
	l.mirror(t, Options{})
	proc := "/proc/" + strconv.Itoa(l.twin.Status().Relay)
	tasks, err := filepath.Glob(proc + "/task/*/status")
	must(t, err)
	if len(tasks) == 0 {
		t.Fatal("no threads found")
	}
	for _, f := range tasks {
		b, err := os.ReadFile(f)
		must(t, err)
		for field, want := range map[string]string{
			"CapEff": "0000000000002000", "CapPrm": "0000000000002000", "CapBnd": "0000000000000000", "CapInh": "0000000000000000",
			"CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
		} {
			if !strings.Contains(string(b), field+":\t"+want+"\n") {
				t.Errorf("%s: %s is not %s:\n%s", f, field, want, b)
			}
		}
	}
	if es, err := os.ReadDir(proc + "/root"); err != nil || len(es) != 0 {
		t.Errorf("its root has %v, %v; want an empty directory", es, err)
	}
	if m, err := os.ReadFile(proc + "/mountinfo"); err != nil || strings.Count(string(m), "\n") != 1 {
		t.Errorf("its mounts: %s, %v; want one", m, err)
	}
	if b, err := os.ReadFile(proc + "/limits"); err != nil || !strings.Contains(string(b), "Max data size             536870912            536870912") {
		t.Errorf("its limits: %v\n%s", err, b)
	}
}

// TestRemovedTAP deletes links inside, and one with the namespace it was moved
// to.
func TestRemovedTAP(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	echo(t, l.server, "tcp", ":80")
	l.mirror(t, Options{})
	l.run(t, "ip link del eth1")
	got := strings.Join(l.lines(t), "\n")
	if !strings.Contains(got, "ip link del eth1") {
		t.Errorf("the difference does not name the link:\n%s", got)
	}
	if l.twin.Status().Relay == 0 {
		t.Fatal("the relay went with the link")
	}
	l.seenAs(t, "tcp", "203.0.113.80:80") // the other link still works
	must(t, l.twin.Reset(t.Context()))
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("after a reset: %q", got)
	}

	far, err := netns.New()
	must(t, err)
	node, err := l.Hold("inside", int(l.inside.NS().Fd()))
	must(t, err)
	must(t, node.Move("eth0", int(far.Fd())))
	far.Close()
	eventually(t, "the link is gone with its namespace", func() bool {
		return strings.Contains(strings.Join(l.lines(t), "\n"), "ip link del eth0")
	})
	if l.twin.Status().Relay == 0 {
		t.Error("the relay went with the link")
	}
}
