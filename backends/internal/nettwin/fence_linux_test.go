package nettwin

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func (l *testLab) counts(t *testing.T) relay.Counts {
	t.Helper()
	c, err := l.twin.Counts()
	must(t, err)
	return c
}

// TestOnlyTheHostsWays changes the twin's routes so that its kernel chooses a
// next hop or an interface that the host does not use for the destination. Where
// nobody makes the host go that way, the relay must not carry the flow by the
// host's way instead: the check would pass for a route that leads nowhere. Where
// somebody does, the flow goes the twin's way, or nowhere if that is where it
// leads.
func TestOnlyTheHostsWays(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	l.paths(t, "81")
	for _, c := range []struct{ name, change, addr, host, seen string }{
		{"another gateway, v4", "ip route replace default via 192.0.2.254", servers[0], byGW1[0], byGW3[0]},
		{"another gateway, v6", "ip -6 route replace default via 2001:db8:1::fe metric 1024", servers[1], byGW1[1], byGW3[1]},
		{"another interface's gateway", "ip route replace default via 198.51.100.1", servers[0], byGW1[0], byGW2[0]},
		{"another interface's gateway, v6", "ip -6 route add 2001:db8:80::/64 via 2001:db8:2::1", servers[1], byGW1[1], byGW2[1]},
		{"as if it were on the link, v4", "ip route add 203.0.113.0/24 dev eth0", servers[0], byGW1[0], ""},
		{"as if it were on the link, v6", "ip -6 route add 2001:db8:80::/64 dev eth0", servers[1], byGW1[1], ""},
		{"a table of the twin's own", "ip rule add to 203.0.113.80 lookup 77", servers[0], byGW1[0], ""},
	} {
		t.Run(c.name+", alone", func(t *testing.T) {
			l.mirror(t, Options{})
			l.wantPath(t, c.addr, c.host) // before
			l.run(t, "ip route add default via 192.0.2.77 table 77")
			l.run(t, c.change)
			if err := l.connect("tcp", c.addr+":80", 5*time.Second); !errors.Is(err, unix.EHOSTUNREACH) {
				t.Errorf("tcp: got %v, want no route to host", err)
			}
			// Linux tells a datagram socket of a closed port, not of this.
			if got, err := l.datagramWithin(c.addr+":81", "x", 300*time.Millisecond); err == nil {
				t.Errorf("udp: got %q", got)
			}
			if n := l.counts(t).Unmirrored; n < 2 {
				t.Errorf("%d flows counted as not carried, want 2", n)
			}
			if ls := l.limits(t); len(ls) != 1 || ls[0].Kind != way.Route {
				t.Errorf("limits: %v, want one of kind %s", ls, way.Route)
			}
		})
		t.Run(c.name, func(t *testing.T) {
			l.mirror(t, Options{Ways: l.keeper})
			l.wantPath(t, c.addr, c.host)
			l.run(t, "ip route add default via 192.0.2.77 table 77")
			l.run(t, c.change)
			if c.seen != "" {
				l.wantPath(t, c.addr, c.seen)
			} else {
				l.wantSilence(t, "tcp", c.addr+":80")
			}
			if ls := l.limits(t); len(ls) != 0 {
				t.Errorf("limits: %v", ls)
			}
		})
	}
}

// wantPath expects that TCP and UDP from inside go a way.
func (l *testLab) wantPath(t *testing.T, addr, want string) {
	t.Helper()
	for network, port := range map[string]string{"tcp": ":80", "udp": ":81"} {
		if got, err := path(t, l.inside, network, addr+port); got != want {
			t.Errorf("%s to %s: seen as %q, %v; want %q", network, addr, got, err, want)
		}
	}
}

// TestTwinsOwnRefusals are decided by the twin's kernel alone.
func TestTwinsOwnRefusals(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"), nstest.NFT, nstest.Tool("nft"))
	echo(t, l.server, "tcp", ":80")
	for _, c := range []struct {
		name, change string
		want         error
	}{
		{"no default route", "ip route del default", unix.ENETUNREACH},
		{"a blackhole rule", "ip rule add pref 9 blackhole", unix.EINVAL},
		{"the link is down", "ip link set eth0 down", unix.ENETUNREACH},
		{"a firewall that rejects", "nft table ip f { chain o { type filter hook output priority 0; tcp dport 80 reject with tcp reset; }; }", unix.ECONNREFUSED},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.mirror(t, Options{})
			l.seenAs(t, "tcp", "203.0.113.80:80")
			l.run(t, c.change)
			if err := l.connect("tcp", "203.0.113.80:80", 5*time.Second); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// TestHostItselfIsFenced removes the host's addresses from the twin and routes
// them, and loopback, into the TAP.
func TestHostItselfIsFenced(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"), nstest.Tool("sysctl"))
	echo(t, l.host, "tcp", ":22")
	l.mirror(t, Options{})
	for _, line := range []string{
		"ip addr del 192.0.2.2/24 dev eth0", "ip addr add 192.0.2.9/24 dev eth0", "ip route replace default via 192.0.2.1",
		"ip -6 addr del 2001:db8:1::2/64 dev eth0", "ip -6 addr add 2001:db8:1::9/64 dev eth0", "ip -6 route replace default via 2001:db8:1::1",
		"ip route del table local 127.0.0.0/8 dev lo", "ip route del table local 127.0.0.1 dev lo", "sysctl -qw net.ipv4.conf.eth0.route_localnet=1",
		"ip route add 127.0.0.0/8 via 192.0.2.1 src 192.0.2.9",
	} {
		l.run(t, line)
	}
	for _, addr := range []string{"192.0.2.2:22", "198.51.100.2:22", "[2001:db8:1::2]:22", "127.0.0.1:22"} {
		err := l.connect("tcp", addr, 2*time.Second)
		if err == nil {
			t.Errorf("%s: connected to the host", addr)
		}
		t.Logf("%s: %v", addr, err)
	}
	if n := l.counts(t).Fenced; n == 0 {
		t.Error("nothing was counted as fenced")
	}
	const reason = "a service of the host itself that is not relayed: netsandbox create --relay PORT"
	want := []way.Limit{{Kind: way.Route, Subject: "192.0.2.2", Reason: reason}, {Kind: way.Route, Subject: "2001:db8:1::2", Reason: reason}}
	if got := l.limits(t); !slices.Equal(got, want) { // the other two addresses are the twin's kernel's to refuse
		t.Errorf("limits %v, want %v", got, want)
	}
}

func TestCutTwin(t *testing.T) {
	l := newLab(t, nstest.NFT)
	echo(t, l.server, "tcp", ":80")
	echoUDP(t, l.server, ":5353")
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	l.mirror(t, Options{Cut: true, Relay: []uint16{7890}})
	if err := l.connect("tcp", "203.0.113.80:80", time.Second); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("tcp: got %v, want silence", err)
	}
	if got, err := l.datagramWithin("203.0.113.80:5353", "x", time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("udp: got %q, %v, want silence", got, err)
	}
	if got, err := l.ask("127.0.0.1:7890"); err == nil {
		t.Errorf("the host's proxy, a way out, answered %q", got)
	}
	if !l.twin.Status().Cut {
		t.Error("status does not say that the twin is cut")
	}
}
