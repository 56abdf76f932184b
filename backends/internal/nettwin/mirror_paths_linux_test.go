package nettwin

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// policy is a host with two uplinks as somebody who knows how would set it up:
// several addresses a link, source hints, metrics, a balanced route, more specific
// ones, a table by source and one by destination, deprecated addresses.
const policy = `
ip addr add 192.0.2.30/24 dev eth0
ip addr add 192.0.2.31/32 dev eth0
ip addr add 198.51.100.40/24 dev eth1
ip addr add 10.255.0.1/32 dev lo
ip -6 addr add 2001:db8:1::30/64 dev eth0 nodad
ip -6 addr add 2001:db8:1::dead/64 dev eth0 nodad preferred_lft 0
ip -6 addr add 2001:db8:2::40/64 dev eth1 nodad preferred_lft 0
ip route add default via 198.51.100.1 metric 900
ip -6 route add default via 2001:db8:2::1 metric 2000
ip route add 203.0.116.0/24 via 192.0.2.254
ip route add 203.0.116.128/25 via 198.51.100.1
ip route add 203.0.116.200 via 192.0.2.1 src 192.0.2.30
ip route add 203.0.117.0/24 via 192.0.2.1 metric 10
ip route add 203.0.117.0/24 via 192.0.2.254 metric 5
ip route add 203.0.118.0/24 nexthop via 192.0.2.1 weight 2 nexthop via 192.0.2.254 weight 1 nexthop via 198.51.100.1 weight 1
ip route add 203.0.119.0/24 via 198.51.100.1 src 198.51.100.40
ip route add 203.0.121.0/24 via 192.0.2.254 src 192.0.2.31
ip route add default via 198.51.100.1 table 200
ip route add 203.0.120.0/24 via 192.0.2.254 table 201
ip rule add pref 100 from 198.51.100.0/24 lookup 200
ip rule add pref 101 to 203.0.120.0/24 lookup 201
ip -6 route add 2001:db8:86::/64 via 2001:db8:1::fe
ip -6 route add 2001:db8:86::8000/113 via 2001:db8:2::1
ip -6 route add 2001:db8:87::/64 via 2001:db8:1::fe src 2001:db8:1::30
ip -6 route add 2001:db8:88::/64 nexthop via 2001:db8:1::1 nexthop via 2001:db8:1::fe nexthop via 2001:db8:2::1
ip addrlabel add prefix 2001:db8:86::10/128 label 99
ip addrlabel add prefix 2001:db8:1::2/128 label 99
ip -6 route add default via 2001:db8:2::1 table 200
ip -6 route add 2001:db8:89::/64 via 2001:db8:1::fe table 201
ip -6 rule add pref 100 from 2001:db8:2::/64 lookup 200
ip -6 rule add pref 101 to 2001:db8:89::/64 lookup 201
`

// destinations are addresses of the server, and where a client binds first when
// it says so. That which the policy is about says what to expect; for balanced
// routes only the host's kernel knows.
var destinations = []struct{ to, from, want string }{
	{"203.0.113.80", "", "one 192.0.2.2"},
	{"203.0.113.80", "192.0.2.30", "one 192.0.2.30"},
	{"203.0.113.80", "198.51.100.2", "two 198.51.100.2"},
	{"203.0.113.80", "198.51.100.40", "two 198.51.100.40"},
	{"203.0.116.10", "", "three 192.0.2.2"},
	{"203.0.116.130", "", "two 198.51.100.2"},
	{"203.0.116.200", "", "one 192.0.2.30"},
	{"203.0.117.10", "", "three 192.0.2.2"},
	{"203.0.118.1", "", ""},
	{"203.0.118.2", "", ""},
	{"203.0.118.3", "", ""},
	{"203.0.118.4", "", ""},
	{"203.0.119.10", "", "two 198.51.100.40"},
	{"203.0.120.10", "", "three 192.0.2.2"},
	{"203.0.120.10", "198.51.100.2", "two 198.51.100.2"},
	{"203.0.121.10", "", "three 192.0.2.31"},
	{"2001:db8:80::80", "", ""}, // two addresses are equal to RFC 6724
	{"2001:db8:80::80", "2001:db8:1::dead", "one 2001:db8:1::dead"},
	{"2001:db8:80::80", "2001:db8:2::2", "two 2001:db8:2::2"},
	{"2001:db8:80::80", "2001:db8:2::40", "two 2001:db8:2::40"},
	{"2001:db8:86::10", "", "three 2001:db8:1::2"}, // by its label
	{"2001:db8:86::8010", "", "two 2001:db8:2::2"},
	{"2001:db8:87::10", "", "three 2001:db8:1::30"},
	{"2001:db8:88::1", "", ""},
	{"2001:db8:88::2", "", ""},
	{"2001:db8:88::3", "", ""},
	{"2001:db8:89::10", "", ""},
	{"2001:db8:89::10", "2001:db8:2::2", "two 2001:db8:2::2"},
}

// TestSourceAndPathAreTheHosts asks a server how it sees a client on the host and
// one in the twin, one after the other: from what address, by which gateway.
func TestSourceAndPathAreTheHosts(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	l.onHostAll(t, policy)
	l.outside(t, "203.0.116.0/24", "203.0.117.0/24", "203.0.118.0/24", "203.0.119.0/24", "203.0.120.0/24", "203.0.121.0/24",
		"2001:db8:86::/64", "2001:db8:87::/64", "2001:db8:88::/64", "2001:db8:89::/64")
	l.paths(t, "80")
	l.mirror(t, Options{Ways: l.lanes(t)})
	if was, now := addressesOf(t, l.host), addressesOf(t, l.inside); !slices.Equal(was, now) {
		t.Errorf("addresses of the host in order\n%s\nin the twin\n%s", strings.Join(was, "\n"), strings.Join(now, "\n"))
	}
	paths := map[string]bool{}
	for _, d := range destinations {
		for _, network := range []string{"tcp", "udp"} {
			name := network + " to " + d.to
			if d.from != "" {
				name += " from " + d.from
			}
			t.Run(name, func(t *testing.T) {
				addr := netip.AddrPortFrom(netip.MustParseAddr(d.to), 80)
				want, err := pathFrom(t, l.host, network, d.from, addr)
				must(t, err)
				if d.want != "" && want != d.want {
					t.Errorf("the host itself goes %q, want %q", want, d.want)
				}
				got, err := pathFrom(t, l.inside, network, d.from, addr)
				if err != nil || got != want {
					t.Errorf("the twin goes %q, %v; the host %q", got, err, want)
				}
				paths[want[:3]] = true
			})
		}
	}
	if len(paths) != 3 {
		t.Errorf("the policy uses %v, want all three gateways", paths)
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("traffic is no difference: %q", got)
	}
}

// addressesOf lists those of a node in the kernel's order, by link.
func addressesOf(t *testing.T, n *netlab.Node) []string {
	t.Helper()
	have, err := observe(int(n.NS().Fd()))
	must(t, err)
	var out []string
	for _, m := range have.addresses {
		out = append(out, rtnl.AddressText(m, have.name))
	}
	return out
}

// outside gives the server networks that every gateway knows the way to.
func (l *testLab) outside(t *testing.T, nets ...string) {
	t.Helper()
	for _, n := range nets {
		p := netip.MustParsePrefix(n)
		via := map[*netlab.Node]string{l.gw1: "203.0.113.80", l.gw2: "203.0.114.80", l.gw3: "203.0.115.80"}
		family := "-4"
		if p.Addr().Is6() {
			family, via = "-6", map[*netlab.Node]string{l.gw1: "2001:db8:80::80", l.gw2: "2001:db8:81::80", l.gw3: "2001:db8:82::80"}
		}
		for gw, v := range via {
			must(t, gw.Route(n, v))
		}
		_, err := l.server.Run(t.Context(), "ip", family, "route", "add", "local", n, "dev", "lo")
		must(t, err)
	}
	must(t, l.server.Sysctl("ipv6/ip_nonlocal_bind", "1")) // a local route is no address
}

// pathFrom is [path] for a client that binds to an address first.
func pathFrom(t *testing.T, n *netlab.Node, network, from string, to netip.AddrPort) (got string, err error) {
	t.Helper()
	if from == "" {
		return path(t, n, network, to.String())
	}
	err = n.Do(func() error {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
		if network == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		c, err := d.DialContext(ctx, network, to.String())
		if err != nil {
			return err
		}
		defer c.Close()
		got, err = pathOf(c, network, 3*time.Second)
		return err
	})
	return got, err
}
