package nettwin

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// ways are addresses of the outside and the source that a server there sees.
var ways = []struct{ name, server, seen string }{
	{"v4 by the default route", "203.0.113.80", "192.0.2.2"},
	{"v6 by the default route", "[2001:db8:80::80]", "2001:db8:1::2"},
	{"v4 on eth1's own subnet", "198.51.100.1", "198.51.100.2"},
	{"v6 on eth1's own subnet", "[2001:db8:2::1]", "2001:db8:2::2"},
}

// TestReach runs on a host whose firewall forwards nothing, which filters by
// reverse path and routes for nobody: none of it is needed.
func TestReach(t *testing.T) {
	l := newLab(t, nstest.Tool("iptables"), nstest.Tool("ip6tables"))
	for _, tool := range []string{"iptables", "ip6tables"} {
		_, err := l.host.Run(t.Context(), tool, "-P", "FORWARD", "DROP")
		must(t, err)
	}
	echo(t, l.server, "tcp", ":80")
	echo(t, l.gw2, "tcp", ":80")
	echoUDP(t, l.server, ":5353")
	echoUDP(t, l.gw2, ":5353")
	l.mirror(t, Options{})
	for _, c := range ways {
		t.Run("tcp "+c.name, func(t *testing.T) {
			if got := l.seenAs(t, "tcp", c.server+":80"); got != c.seen {
				t.Errorf("server saw %s, want %s", got, c.seen)
			}
		})
		t.Run("udp "+c.name, func(t *testing.T) {
			for _, size := range []int{1, 1400, 9000} {
				payload := strings.Repeat("x", size)
				got, err := l.datagram(c.server+":5353", payload)
				if want := c.seen + "\n" + payload; got != want || err != nil {
					t.Errorf("%d bytes: got %.40q (%d bytes), %v; want %.40q", size, got, len(got), err, want)
				}
			}
		})
	}
	c, err := l.twin.Counts()
	must(t, err)
	if c.Unmirrored != 0 || c.Fenced != 0 {
		t.Errorf("ordinary traffic was fenced: %+v", c)
	}
}

// datagram sends one and returns the answer.
func (l *testLab) datagram(addr, payload string) (string, error) {
	return l.datagramWithin(addr, payload, 3*time.Second)
}

func (l *testLab) datagramWithin(addr, payload string, limit time.Duration) (string, error) {
	c, err := l.inside.Dial(context.Background(), "udp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(c, payload); err != nil {
		return "", err
	}
	b := make([]byte, 64<<10)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// connect dials from inside with a limit of its own.
func (l *testLab) connect(network, addr string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := l.inside.Dial(ctx, network, addr)
	if err == nil {
		c.Close()
	}
	return err
}

// TestHostFilter has a firewall on the host that is not the twin's: it was changed
// after the twin was made. A rejection is passed on. A datagram that is dropped is an
// error of the call on the host (EPERM); no packet can say that, and a limit does.
func TestHostFilter(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	l.mirror(t, Options{})
	_, from, err := l.twin.Limits(0)
	must(t, err)
	_, err = l.host.Run(t.Context(), "nft", "table inet g { chain out { type filter hook output priority 0; "+
		"tcp dport 99 reject with icmpx admin-prohibited; udp dport 98 drop; }; }")
	must(t, err)
	for addr, want := range map[string]error{"203.0.113.80:99": unix.EHOSTUNREACH, "[2001:db8:80::80]:99": unix.EACCES} {
		if err := l.connect("tcp", addr, 5*time.Second); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", addr, err, want)
		}
	}
	f := l.opened(t, unix.SOCK_DGRAM, "203.0.113.80:98", 1)[0]
	defer f.Close()
	_, err = f.WriteString("x")
	must(t, err)
	eventually(t, "the firewall is a limit", func() bool {
		found, _, err := l.twin.Limits(from)
		must(t, err)
		return slices.ContainsFunc(found, func(f way.Limit) bool { return f.Kind == way.Firewall && f.Subject == "203.0.113.80" })
	})
}

// TestLinkLocal goes to the gateway by its link-local address.
func TestLinkLocal(t *testing.T) {
	l := newLab(t)
	echo(t, l.gw1, "tcp", ":80")
	l.mirror(t, Options{})
	gw, err := observe(int(l.gw1.NS().Fd()))
	must(t, err)
	for _, m := range gw.addresses {
		a, _ := netip.AddrFromSlice(rtnl.Find(m[unix.SizeofIfAddrmsg:], unix.IFA_ADDRESS))
		if !a.IsLinkLocalUnicast() || index(m[4:]) != gw.byName("in") {
			continue
		}
		// A name cannot be a zone here: the test's thread has other links.
		inside, err := observe(int(l.inside.NS().Fd()))
		must(t, err)
		zone := strconv.Itoa(inside.byName("eth0"))
		if got := l.seenAs(t, "tcp", netip.AddrPortFrom(a.WithZone(zone), 80).String()); !strings.HasPrefix(got, "fe80::") {
			t.Errorf("server saw %s", got)
		}
		return
	}
	t.Fatal("the gateway has no link-local address")
}

// TestWithoutIPv6 mirrors a host on which it is switched off.
func TestWithoutIPv6(t *testing.T) {
	l := newLab(t, nstest.NFT)
	must(t, l.host.Sysctl("ipv6/conf/all/disable_ipv6", "1"))
	echo(t, l.server, "tcp", ":80")
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	l.mirror(t, Options{Relay: []uint16{7890}})
	l.seenAs(t, "tcp", "203.0.113.80:80")
	if got, err := l.ask("127.0.0.1:7890"); got != "host-proxy" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("difference: %q", got)
	}
}
