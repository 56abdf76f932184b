package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// gateways is how many ways out the host of [waysWorld] has beside its own.
const gateways = 10

// waysWorld is a host with eleven gateways, half of them on a link that it does not
// use itself, and an environment for each. Every gateway is the server, at the same
// address, and says on port 80 which one it is.
type waysWorld struct {
	*crashWorld
	host *node
}

func newWaysWorld(t *testing.T) *waysWorld {
	t.Helper()
	nstest.New(t, nstest.Root, nstest.Overlay, nstest.TUN, nstest.NFT, nstest.Tool("ip"), nstest.Tool("nft"))
	self, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { self.Close() })
	w := &waysWorld{&crashWorld{t: t, bin: installed(t)}, &node{self}}
	w.state = filepath.Join(t.TempDir(), "state")
	w.env = append(os.Environ(), "NETSANDBOX_STATE_DIR="+w.state)
	if err := w.wire(); err != nil {
		t.Fatal(err)
	}
	if err := linksUp(t); err != nil {
		t.Fatal(err)
	}
	return w
}

// gateway n has number 10+n on its link: even ones are on eth0, odd ones on eth1.
func gateway(n int) (link, v4, v6 string) {
	if n%2 == 0 {
		return "eth0", fmt.Sprintf("192.0.2.%d", 10+n), fmt.Sprintf("2001:db8:1::%d", 10+n)
	}
	return "eth1", fmt.Sprintf("198.51.100.%d", 10+n), fmt.Sprintf("2001:db8:2::%d", 10+n)
}

func (w *waysWorld) wire() error {
	lan := newNode(w.t)
	err := errors.Join(
		w.host.sysctl("ipv6/conf/all/accept_dad=0", "ipv6/conf/default/accept_dad=0", "ipv4/conf/all/rp_filter=1", "ipv4/conf/default/rp_filter=1"),
		lan.ip("link add name eth0 type bridge", "link set eth0 up", "link add name eth1 type bridge", "link set eth1 up"),
	)
	for _, link := range []string{"eth0", "eth1"} {
		err = errors.Join(err,
			w.host.ip(fmt.Sprintf("link add %s type veth peer name host-%s netns %s", link, link, lan.path()), "link set "+link+" up"),
			lan.ip(fmt.Sprintf("link set host-%s master %s up", link, link)))
	}
	err = errors.Join(err, w.host.ip(
		"addr add 192.0.2.2/24 dev eth0", "addr add 2001:db8:1::2/64 dev eth0 nodad",
		"addr add 198.51.100.2/24 dev eth1", "addr add 2001:db8:2::2/64 dev eth1 nodad"))
	for n := range gateways + 1 {
		gw := newNode(w.t)
		link, v4, v6 := gateway(n)
		err = errors.Join(err,
			gw.ip(fmt.Sprintf("link add in type veth peer name gw%d netns %s", n, lan.path()), "link set in up",
				"addr add "+v4+"/24 dev in", "addr add "+v6+"/64 dev in nodad",
				"addr add 203.0.113.80/32 dev lo", "addr add 2001:db8:80::80/128 dev lo nodad"),
			lan.ip(fmt.Sprintf("link set gw%d master %s up", n, link)),
			w.serve(gw, n))
	}
	_, v4, v6 := gateway(0)
	return errors.Join(err, w.host.ip("route add default via "+v4, "route add default via "+v6))
}

func (w *waysWorld) serve(gw *node, n int) error {
	return gw.do(func() error {
		ln, err := net.Listen("tcp", ":80")
		if err == nil {
			w.t.Cleanup(func() { ln.Close() })
			go eachConn(ln, func(c net.Conn) { fmt.Fprintf(c, "gw%d\n", n) })
		}
		return err
	})
}

func envName(n int) string { return fmt.Sprintf("e%d", n) }

// together runs a command in the first environments at the same time and returns
// what each printed. Commands are started here and not on goroutines: they inherit
// the namespaces of the test's thread.
func (w *waysWorld) together(envs int, script func(n int) string) []string {
	w.t.Helper()
	cmds := make([]*exec.Cmd, envs+1)
	outs := make([]bytes.Buffer, envs+1)
	for n := 1; n <= envs; n++ {
		cmds[n] = w.command("exec", envName(n), "--", "sh", "-ec", script(n))
		cmds[n].Stdout, cmds[n].Stderr = &outs[n], &outs[n]
		if err := cmds[n].Start(); err != nil {
			w.t.Fatal(err)
		}
	}
	said := make([]string, envs+1)
	for n := 1; n <= envs; n++ {
		err := cmds[n].Wait()
		if said[n] = outs[n].String(); err != nil {
			w.t.Errorf("%s: %q: %v: %s", envName(n), script(n), err, said[n])
		}
	}
	return said
}

// turn changes the routes of the first environments, each in a way of its own, so
// that environment n has gateway n as its server.
func (w *waysWorld) turn(envs int) {
	w.t.Helper()
	w.together(envs, func(n int) string {
		_, v4, v6 := gateway(n)
		way := "ip route replace default via %s; ip -6 route replace default via %s"
		switch n % 3 {
		case 1:
			way = "ip route add default via %s table 77; ip rule add to 203.0.113.80 lookup 77; ip -6 route add default via %s table 77; ip -6 rule add to 2001:db8:80::80 lookup 77"
		case 2:
			way = "ip route add 203.0.113.0/24 via %s; ip -6 route add 2001:db8:80::/64 via %s metric 1"
		}
		return fmt.Sprintf(way, v4, v6)
	})
}

// gone connects from the first environments, several times by both families, and
// wants each to reach its own gateway every time.
func (w *waysWorld) gone(envs int) {
	w.t.Helper()
	const times = 3
	lab := filepath.Join(w.bin, "lab")
	said := w.together(envs, func(int) string {
		return strings.Repeat(lab+" line tcp 203.0.113.80:80; "+lab+" line tcp [2001:db8:80::80]:80; ", times)
	})
	for n := 1; n <= envs; n++ {
		if want := strings.Repeat(fmt.Sprintf("gw%d\n", n), 2*times); said[n] != want {
			w.t.Errorf("%s went %q, want %q", envName(n), said[n], want)
		}
	}
}

// kill ends every holder as nothing can prepare for.
func (w *waysWorld) kill(envs int) {
	w.t.Helper()
	var pids []int
	for n := 1; n <= envs; n++ {
		var s report.Status
		if err := json.Unmarshal([]byte(w.must("status", envName(n), "--json")), &s); err != nil {
			w.t.Fatal(err)
		}
		pids = append(pids, s.View.Holder)
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			w.t.Fatalf("kill holder %d: %v", pid, err)
		}
	}
	end := time.Now().Add(20 * time.Second)
	for _, pid := range pids {
		for !over(pid) {
			if time.Now().After(end) {
				w.t.Fatalf("holder %d does not end", pid)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// over reports whether a process is gone, or a zombie that nobody has reaped yet.
func over(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// named runs a verb that has to say all of this.
func (w *waysWorld) named(verb string, words ...string) {
	w.t.Helper()
	out := w.must(verb)
	for _, word := range words {
		if !strings.Contains(out, word) {
			w.t.Errorf("%s does not say %q:\n%s", verb, word, out)
		}
	}
}

// TestTenEnvironmentsGoTenWays at the same time, and leave the host as it was when
// all that holds them is killed and anything is run.
func TestTenEnvironmentsGoTenWays(t *testing.T) {
	w := newWaysWorld(t)
	before := hostNetwork(w.t)
	for n := 1; n <= gateways; n++ {
		w.must("create", envName(n), "--capture-connections=false")
		t.Cleanup(func() { w.run("discard", envName(n), "--yes") })
	}
	if diff := cmp.Diff(before, hostNetwork(w.t)); diff != "" {
		t.Errorf("after create (-before +after):\n%s", diff)
	}
	w.turn(gateways)
	w.gone(gateways)
	out, err := exec.Command(filepath.Join(w.bin, "lab"), "line", "tcp", "203.0.113.80:80").CombinedOutput()
	if err != nil || string(out) != "gw0\n" {
		t.Errorf("the host itself: %q, %v", out, err)
	}
	if before == hostNetwork(w.t) {
		t.Error("the host's network has nothing of ours, so its own routes were used")
	}
	w.kill(gateways)
	w.named("doctor", "leftover rule", "leftover route", "netsandbox recover")
	if before == hostNetwork(w.t) {
		t.Error("killed holders leave nothing anyway, or doctor removed it")
	}
	w.must("list")
	if diff := cmp.Diff(before, hostNetwork(w.t)); diff != "" {
		t.Errorf("after the next command (-before +after):\n%s", diff)
	}
	const some = 3
	for _, next := range [][]string{
		{"exec", envName(gateways), "--", "true"}, {"status", envName(1)}, {"recover"}, {"check", envName(2)}, {"reset", envName(1), "--network"},
	} {
		w.turn(some)
		w.gone(some)
		w.kill(some)
		if before == hostNetwork(w.t) {
			t.Error("killed holders leave nothing anyway")
		}
		if next[0] == "recover" {
			w.named("recover", "swept: rule", "swept: route", "swept: cgroup netsandbox/")
		} else {
			w.must(next...)
		}
		if diff := cmp.Diff(before, hostNetwork(w.t)); diff != "" {
			t.Errorf("after %q (-before +after):\n%s", next, diff)
		}
	}
}
