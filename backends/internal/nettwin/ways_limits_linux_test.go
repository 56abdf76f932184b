package nettwin

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// wantOnly expects that one limit was met and no other.
func (l *testLab) wantOnly(t *testing.T, kind way.Kind, subject string) {
	t.Helper()
	if ls := l.limits(t); len(ls) != 1 || ls[0].Kind != kind || ls[0].Subject != subject {
		t.Errorf("limits: %v, want one of kind %s about %s", ls, kind, subject)
	}
}

// TestForeignSource gives the twin an address that the host does not have. Nothing
// can be sent from it, and a check must not be told that the way is dead.
func TestForeignSource(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	for six, lines := range [2][]string{
		{"ip addr add 192.0.2.9/24 dev eth0", "ip route replace default via 192.0.2.1 src 192.0.2.9"},
		{"ip -6 addr add 2001:db8:1::9/64 dev eth0 nodad", "ip -6 route replace default via 2001:db8:1::1 src 2001:db8:1::9"},
	} {
		l.mirror(t, Options{Ways: l.keeper})
		for _, line := range lines {
			l.run(t, line)
		}
		if err := l.connect("tcp", servers[six]+":80", 5*time.Second); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("tcp: got %v, want no route to host", err)
		}
		if got, err := l.datagramWithin(servers[six]+":81", "x", 300*time.Millisecond); err == nil {
			t.Errorf("udp: got %q", got)
		}
		l.wantOnly(t, way.Source, [2]string{"192.0.2.9", "2001:db8:1::9"}[six])
	}
	if n := l.keeper.lanes(); n != 0 {
		t.Errorf("%d lanes were made for packets that nobody can send", n)
	}
}

// TestSourceIsKept binds inside to each address that the host has, by the host's
// way and by another.
func TestSourceIsKept(t *testing.T) {
	l := newWaysLab(t)
	must(t, l.host.Address("eth0", "192.0.2.3/24", "2001:db8:1::3/64"))
	l.paths(t, "80")
	l.paths(t, "81")
	l.mirror(t, Options{Ways: l.keeper})
	for _, gw := range []struct{ link, v4, v6 string }{{"one", "192.0.2.1", "2001:db8:1::1"}, {"three", "192.0.2.254", "2001:db8:1::fe"}} {
		l.run(t, "ip route replace default via "+gw.v4)
		l.run(t, "ip -6 route replace default via "+gw.v6)
		for six, server := range servers {
			for _, src := range [2][]string{{"192.0.2.2", "192.0.2.3"}, {"2001:db8:1::2", "2001:db8:1::3"}}[six] {
				for network, port := range map[string]string{"tcp": ":80", "udp": ":81"} {
					if got, err := l.pathFrom(t, network, src, server+port); got != gw.link+" "+src {
						t.Errorf("%s from %s to %s: seen as %q, %v; want %q", network, src, server, got, err, gw.link+" "+src)
					}
				}
			}
		}
	}
	if ls := l.limits(t); len(ls) != 0 {
		t.Errorf("limits: %v", ls)
	}
}

// pathFrom is [path] from inside with a source address.
func (l *testLab) pathFrom(t *testing.T, network, src, addr string) (string, error) {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(src), 0)
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(at), Timeout: 3 * time.Second}
	if network == "udp" {
		d.LocalAddr = net.UDPAddrFromAddrPort(at)
	}
	var c net.Conn
	err := l.inside.Do(func() (err error) {
		c, err = d.DialContext(context.Background(), network, addr)
		return err
	})
	if err != nil {
		return "", err
	}
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(3*time.Second)))
	if network == "udp" {
		if _, err := c.Write([]byte{0}); err != nil {
			return "", err
		}
	}
	b := make([]byte, 128)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// TestMultipath spreads flows inside, on the host, and on both. Each flow takes
// the leg that the twin's kernel draws for it.
func TestMultipath(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	spread := []string{
		"ip route replace default nexthop via 192.0.2.1 dev eth0 nexthop via 192.0.2.254 dev eth0",
		"ip -6 route del default", "ip -6 route add default nexthop via 2001:db8:1::1 dev eth0 nexthop via 2001:db8:1::fe dev eth0",
	}
	one := []string{"ip route replace default via 192.0.2.254", "ip -6 route del default", "ip -6 route add default via 2001:db8:1::fe"}
	for _, c := range []struct {
		name         string
		host, inside []string
		want         []string
	}{
		{"inside", nil, spread, []string{"one", "three"}},
		{"on the host, one way inside", spread, one, []string{"three"}},
		{"on both", nil, nil, []string{"one", "three"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			must(t, errors.Join(l.host.Sysctl("ipv4/fib_multipath_hash_policy", "1"), l.host.Sysctl("ipv6/fib_multipath_hash_policy", "1")))
			for _, line := range c.host {
				_, err := l.host.Run(t.Context(), strings.Fields(line)...)
				must(t, err)
			}
			l.mirror(t, Options{Ways: l.keeper})
			for _, line := range c.inside {
				l.run(t, line)
			}
			for _, server := range servers {
				seen := map[string]int{}
				for range 40 {
					got, err := path(t, l.inside, "tcp", server+":80")
					must(t, err)
					link, _, _ := strings.Cut(got, " ")
					seen[link]++
				}
				for _, link := range c.want {
					if seen[link] == 0 {
						t.Errorf("to %s: %v, want some by each of %v", server, seen, c.want)
					}
				}
				if len(seen) != len(c.want) {
					t.Errorf("to %s: %v, want none but by %v", server, seen, c.want)
				}
			}
			if ls := l.limits(t); len(ls) != 0 {
				t.Errorf("limits: %v", ls)
			}
		})
	}
}

// TestLinkIsDownOnTheHost takes away what a way needs, before the first flow and
// under a way that carried some.
func TestLinkIsDownOnTheHost(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	l.mirror(t, Options{Ways: l.keeper})
	l.run(t, "ip route replace default via 198.51.100.1")
	if got, err := path(t, l.inside, "tcp", servers[0]+":80"); got != byGW2[0] {
		t.Fatalf("seen as %q, %v", got, err)
	}
	_, next, err := l.twin.Limits(0)
	must(t, err)
	_, err = l.host.Run(t.Context(), "ip", "link", "set", "eth1", "down")
	must(t, err)
	if err := l.connect("tcp", servers[0]+":80", 5*time.Second); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("got %v, want no route to host", err)
	}
	ls, _, err := l.twin.Limits(next)
	must(t, err)
	if len(ls) != 1 || ls[0].Kind != way.Link || !strings.Contains(ls[0].Subject, "eth1") {
		t.Errorf("limits: %v, want one of kind %s about eth1", ls, way.Link)
	}
}

// TestHostsFirewallAlone has the host refuse what the twin's copy of its rules
// lets out.
func TestHostsFirewallAlone(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "81")
	l.mirror(t, Options{Ways: l.keeper})
	l.ruleset(t, l.host, "table inet g { chain o { type filter hook output priority 0; udp dport 81 drop; }; }")
	for six, server := range servers {
		if _, err := l.datagramWithin(server+":81", "x", 3*time.Second); !errors.Is(err, [2]error{unix.EHOSTUNREACH, unix.EACCES}[six]) {
			t.Errorf("%s: got %v, want what a rule that prohibits says", server, err)
		}
	}
	ls := l.limits(t)
	if len(ls) != 2 || ls[0].Kind != way.Firewall || ls[1].Kind != way.Firewall {
		t.Errorf("limits: %v, want two of kind %s", ls, way.Firewall)
	}
}

// TestScanLeavesRoom sends to hundreds of addresses of a network that only the twin
// takes for one of its own.
func TestScanLeavesRoom(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	l.paths(t, "81")
	l.mirror(t, Options{Ways: l.keeper})
	l.wantPath(t, servers[0], byGW1[0])
	if ls := l.limits(t); len(ls) != 0 {
		t.Errorf("limits: %v", ls)
	}
	l.run(t, "ip route add 198.18.0.0/16 dev eth0")
	before := l.counts(t).Flows
	sent, err := sweep(l.inside, unix.SOCK_DGRAM, onLink[0], 500)
	must(t, err)
	if sent > way.MaxNeighbors || sent < way.MaxNeighbors/2 {
		t.Errorf("%d could be sent to, want %d at most", sent, way.MaxNeighbors)
	}
	eventually(t, "all were carried", func() bool { return l.counts(t).Flows == before+uint64(sent) })
	if lanes := l.keeper.lanes(); lanes != 1 {
		t.Errorf("%d lanes on the host, want one for the link", lanes)
	}
	rules, err := l.host.Run(t.Context(), "ip", "rule")
	must(t, err)
	if lines := bytes.Count([]byte(rules), []byte("\n")); lines > 4 {
		t.Errorf("%d rules on the host, want the host's 3 and one:\n%s", lines, rules)
	}
	l.wantPath(t, servers[0], byGW1[0])
	if ls := l.limits(t); !slices.Equal(ls, []way.Limit{way.Crowded}) {
		t.Errorf("limits: %v, want %v", ls, way.Crowded)
	}
}

// TestCutTwinMakesNoWays is asked to go a way of its own by a twin that goes none.
func TestCutTwinMakesNoWays(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	l.mirror(t, Options{Ways: l.keeper, Cut: true, Unrecorded: true})
	l.run(t, "ip route replace default via 192.0.2.254")
	var all sync.WaitGroup
	for _, network := range []string{"tcp", "udp"} {
		all.Go(func() { l.wantSilence(t, network, servers[0]+":80") })
	}
	all.Wait()
	if n, ls := l.keeper.lanes(), l.limits(t); n != 0 || len(ls) != 0 {
		t.Errorf("%d lanes, limits %v; want none", n, ls)
	}
}

// TestLimitsOutliveReset holds a mark over a reset, which starts another relay.
func TestLimitsOutliveReset(t *testing.T) {
	l := newWaysLab(t)
	l.mirror(t, Options{})
	meet := func(gateway string) {
		l.run(t, "ip route replace default via "+gateway)
		if err := l.connect("tcp", servers[0]+":80", 3*time.Second); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("got %v, want no route to host", err)
		}
	}
	meet("192.0.2.254")
	_, mark, err := l.twin.Limits(0)
	must(t, err)
	must(t, l.twin.Reset(t.Context()))
	if ls, _, err := l.twin.Limits(mark); len(ls) != 0 || err != nil {
		t.Errorf("after the reset: %v, %v; want none", ls, err)
	}
	meet("192.0.2.77")
	if ls, _, err := l.twin.Limits(mark); len(ls) != 1 || ls[0].Subject != "eth0 via 192.0.2.77" || err != nil {
		t.Errorf("since the mark: %v, %v; want that of eth0 via 192.0.2.77", ls, err)
	}
}

// TestRulesOfPorts has the host send flows by what they are and by where they come
// from. The twin's kernel knows those rules too, until somebody inside deletes
// them; the port that they ask for is another than inside.
func TestRulesOfPorts(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	l.paths(t, "81")
	var rules []string
	for family, gw := range map[string]string{"-4": "192.0.2.254", "-6": "2001:db8:1::fe"} {
		for _, line := range []string{
			"rule add pref 70 ipproto udp dport 81 lookup 77", "rule add pref 71 ipproto tcp sport 1024-65534 lookup 77",
			"route add default via " + gw + " dev eth0 table 77",
		} {
			_, err := l.host.Run(t.Context(), append([]string{"ip", family}, strings.Fields(line)...)...)
			must(t, err)
		}
		rules = append(rules, "ip "+family+" rule del pref 70", "ip "+family+" rule del pref 71")
	}
	l.mirror(t, Options{Ways: l.keeper})
	all := func(want func(network string, six int) string) {
		t.Helper()
		for six, server := range servers {
			for network, port := range map[string]string{"tcp": ":80", "udp": ":81"} {
				if got, err := path(t, l.inside, network, server+port); got != want(network, six) || err != nil {
					t.Errorf("%s to %s: seen as %q, %v; want %q", network, server, got, err, want(network, six))
				}
			}
		}
	}
	all(func(network string, six int) string {
		if network == "tcp" && six == 1 { // is routed before it has a port, and stays there
			return byGW1[six]
		}
		return byGW3[six]
	})
	for _, line := range rules {
		l.run(t, line)
	}
	all(func(_ string, six int) string { return byGW1[six] })
	if ls := l.limits(t); len(ls) != 0 {
		t.Errorf("limits: %v", ls)
	}
}
