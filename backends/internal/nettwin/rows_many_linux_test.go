package nettwin

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// routes that candidates may have, ten of them, and what the server then sees.
var candidates = []struct{ change, want string }{
	{"ip route replace default via 192.0.2.254\nip -6 route replace default via 2001:db8:1::fe", "three 192.0.2.2\nthree 2001:db8:1::2"},
	{"ip route replace default via 198.51.100.1\nip -6 route replace default via 2001:db8:2::1", "two 198.51.100.2\ntwo 2001:db8:2::2"},
	{
		"ip route add 203.0.113.80 via 192.0.2.254\nip -6 route add default via 2001:db8:2::1 table 9\nip -6 rule add pref 9 to 2001:db8:80::/48 lookup 9",
		"three 192.0.2.2\ntwo 2001:db8:2::2",
	},
	{"ip rule add pref 9 lookup 9\nip route add default via 198.51.100.1 table 9", "two 198.51.100.2\none 2001:db8:1::2"},
	{"ip route replace default via 192.0.2.254", "three 192.0.2.2\none 2001:db8:1::2"},
	{"ip -6 route replace default via 2001:db8:1::fe", "one 192.0.2.2\nthree 2001:db8:1::2"},
	{"ip -6 route replace default via 2001:db8:2::1", "one 192.0.2.2\ntwo 2001:db8:2::2"},
	{"ip route add 203.0.113.0/24 via 198.51.100.1\nip -6 route add 2001:db8:80::/48 via 2001:db8:1::fe", "two 198.51.100.2\nthree 2001:db8:1::2"},
	{"ip -4 route replace default via inet6 2001:db8:1::fe dev eth0", "three 192.0.2.2\none 2001:db8:1::2"},
	{"ip route replace default via 192.0.2.254\nip -6 rule add pref 9 dport 80 lookup 9\nip -6 route add default via 2001:db8:1::fe table 9", "three 192.0.2.2\nthree 2001:db8:1::2"},
}

// TestTenTwinsAtOnce has ten processes hold one each, every one with a candidate of
// its own, ask at the same time and be killed. What is left has our tag, and a sweep ends it.
func TestTenTwinsAtOnce(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("ip"), nstest.Tool("iptables"), nstest.Tool("ip6tables"))
	l.firewalled(t)
	l.paths(t, "80")
	before, listed := dump(t, int(l.host.NS().Fd())), l.listing(t)
	var ten []*held
	for _, c := range candidates {
		ten = append(ten, l.hold(t, c.change))
	}
	for _, h := range ten {
		h.ready(t)
	}
	for range 2 { // the second time over lanes that are there already
		for _, h := range ten {
			_, err := h.in.Write([]byte{0})
			must(t, err)
		}
		for i, h := range ten {
			want := candidates[i].want
			if got := h.line(t) + "\n" + h.line(t); got != want {
				t.Errorf("twin %d sees %q, want %q", i, got, want)
			}
		}
	}
	if got := outlook(t, l.host); got != viaGW1 {
		t.Errorf("the host gets %s, want %s", got, viaGW1)
	}
	for _, h := range ten {
		must(t, h.cmd.Process.Kill())
	}
	for _, h := range ten {
		_ = h.cmd.Wait() // "signal: killed"
		eventually(t, "the relay follows its holder", func() bool { return unix.Kill(h.relay, 0) == unix.ESRCH })
	}
	left := nstest.Difference(listed, l.listing(t))
	for _, line := range left {
		if !strings.HasPrefix(line, "+ ") || !strings.Contains(line, "proto 91") {
			t.Errorf("left without our tag: %s", line)
		}
	}
	if len(left) == 0 {
		t.Error("nothing was left to sweep: the host took no way but its own")
	}
	gone, err := lanes.Sweep(int(l.host.NS().Fd()))
	must(t, err)
	if got := dump(t, int(l.host.NS().Fd())); got != before {
		t.Errorf("after a sweep of %v the host is\n%s\nbefore it was\n%s", gone, got, before)
	}
	if got := outlook(t, l.host); got != viaGW1 {
		t.Errorf("the host gets %s, want %s", got, viaGW1)
	}
}

// listing is what ip(8) says of the host's routes and rules.
func (l *testLab) listing(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, line := range []string{"ip route show table all", "ip -6 route show table all", "ip rule", "ip -6 rule"} {
		out.WriteString(l.onHost(t, line))
	}
	return out.String()
}

// held is a process that holds a twin.
type held struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	relay int
}

// hold starts one that makes a change first.
func (l *testLab) hold(t *testing.T, change string) *held {
	t.Helper()
	h := &held{cmd: exec.Command("/proc/self/exe")}
	h.cmd.Env = append(os.Environ(), holderEnv+"="+change)
	h.cmd.Stderr = testWriter{t}
	var err error
	h.in, err = h.cmd.StdinPipe()
	must(t, err)
	out, err := h.cmd.StdoutPipe()
	must(t, err)
	must(t, l.host.Start(h.cmd))
	t.Cleanup(func() { _ = h.cmd.Process.Kill() }) // it may be dead already
	h.out = bufio.NewScanner(out)
	return h
}

// ready waits until the twin is there and the change made.
func (h *held) ready(t *testing.T) {
	t.Helper()
	if _, err := fmt.Sscanf(h.line(t), "relay %d", &h.relay); err != nil {
		t.Fatal(err)
	}
}

// line is the next that it says.
func (h *held) line(t *testing.T) string {
	t.Helper()
	if !h.out.Scan() {
		t.Fatalf("the holder ended: %v", h.out.Err())
	}
	return h.out.Text()
}
