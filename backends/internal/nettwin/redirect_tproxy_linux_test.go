package nettwin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// divertAll is the other way to a transparent proxy: streams are marked on their
// way out, routed to lo by the mark, and given to the proxy as they come in there.
const divertAll = `table inet divert {
	chain out {
		type route hook output priority -150;
		meta skuid 990 return;
		ip daddr { 127.0.0.0/8, 192.0.2.0/24, 198.51.100.0/24 } return;
		ip6 daddr { ::1, 2001:db8:1::/64, 2001:db8:2::/64 } return;
		tcp dport 443 meta mark set 1;
	};
	chain in {
		type filter hook prerouting priority -150;
		iif lo meta mark 1 meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:12345;
		iif lo meta mark 1 meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:12345;
	};
};`

// divertLab is a lab whose host diverts its streams to a proxy.
func divertLab(t *testing.T) *testLab {
	t.Helper()
	l := redirectLab(t, divertAll)
	nstest.Require(t, nstest.Tool("ip"))
	for _, line := range []string{
		"ip rule add fwmark 1 lookup 100", "ip route add local default dev lo table 100",
		"ip -6 rule add fwmark 1 lookup 100", "ip -6 route add local default dev lo table 100",
	} {
		l.onHost(t, line)
	}
	return l
}

// byTPROXY is how a proxy learns the destination that gets its streams by TPROXY.
func byTPROXY(c *net.TCPConn) (netip.AddrPort, error) {
	a := c.LocalAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// listenTransparent listens in a node on addresses that TPROXY rules name.
func listenTransparent(t *testing.T, n *netlab.Node) []net.Listener {
	t.Helper()
	var lns []net.Listener
	for _, addr := range []string{"127.0.0.1:12345", "[::1]:12345"} {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			cerr := c.Control(func(fd uintptr) {
				level, opt := unix.SOL_IP, unix.IP_TRANSPARENT
				if netip.MustParseAddrPort(addr).Addr().Is6() {
					level, opt = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
				}
				err = unix.SetsockoptInt(int(fd), level, opt, 1)
			})
			return errors.Join(cerr, err)
		}}
		must(t, n.Do(func() error {
			ln, err := lc.Listen(context.Background(), "tcp", addr)
			lns = append(lns, ln)
			return err
		}))
	}
	return lns
}

// divertedProxy serves what is diverted on the host.
func (l *testLab) divertedProxy(t *testing.T) {
	t.Helper()
	for _, ln := range listenTransparent(t, l.host) {
		serveProxy(t, l.host, ln, "diverted", byTPROXY)
	}
}

var diverted = []string{"203.0.113.80:443", "[2001:db8:80::80]:443"}

// TestDivertingProxy reaches the host's proxy from inside, and one inside when
// there is one.
func TestDivertingProxy(t *testing.T) {
	l := divertLab(t)
	l.divertedProxy(t)
	l.mirror(t, Options{Ways: newNATTeller(t, l.host)})
	if out, err := l.inside.Run(t.Context(), "ip", "route", "show", "table", "100"); err != nil || !strings.Contains(out, "local default dev lo") {
		t.Fatalf("table 100 inside: %q, %v", out, err)
	}
	for _, addr := range diverted {
		if got, err := l.fetch(addr); got != "diverted "+addr || err != nil {
			t.Errorf("%s: got %q, %v; want it diverted", addr, got, err)
		}
	}
	for _, ln := range listenTransparent(t, l.inside) {
		t.Cleanup(func() { ln.Close() })
		go answer(ln, func(c net.Conn) { io.WriteString(c, "inside "+c.LocalAddr().String()+"\n") })
	}
	for _, addr := range diverted {
		if got, err := l.fetch(addr); got != "inside "+addr || err != nil {
			t.Errorf("%s: got %q, %v; want it diverted to the proxy inside", addr, got, err)
		}
	}
	l.wantNoLimit(t)
}

// TestDiversionsThatDiffer changes inside what is diverted.
func TestDiversionsThatDiffer(t *testing.T) {
	for _, c := range []struct{ name, change, addr string }{
		{"another port", "add rule inet divert out tcp dport 8443 meta mark set 1", "203.0.113.80:8443"},
		{"another port, v6", "add rule inet divert out tcp dport 8443 meta mark set 1", "[2001:db8:80::80]:8443"},
		{"nothing", "flush ruleset", "203.0.113.80:443"},
		{"nothing, v6", "flush ruleset", "[2001:db8:80::80]:443"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := divertLab(t)
			greet(t, l.server, ":8443", "server\n")
			l.divertedProxy(t)
			l.mirror(t, Options{Ways: newNATTeller(t, l.host)})
			load(t, l.inside, c.change)
			if got, err := l.fetch(c.addr); err == nil || got != "" {
				t.Errorf("got %q, %v; want nothing", got, err)
			}
			l.wantLimit(t, 0, way.Translation, c.addr)
		})
	}
}
