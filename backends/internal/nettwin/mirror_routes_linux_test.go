package nettwin

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// exotic are routes that a library with a field for each attribute it knows
// loses or breaks: 21 of IPv4, 16 of IPv6.
const exotic = `
ip link add br0 type bridge
ip link set br0 up
ip addr add 10.200.0.1/24 dev br0
ip tuntap add tun0 mode tun
ip link set tun0 up
ip addr add 10.8.0.2 peer 10.8.0.1 dev tun0
ip nexthop add id 30 via 192.0.2.1 dev eth0
ip nexthop add id 31 via 198.51.100.1 dev eth1 onlink
ip nexthop add id 40 group 30,3/31,250 type resilient buckets 8 idle_timer 60 unbalanced_timer 300
ip nexthop add id 41 blackhole
ip nexthop add id 42 dev eth0 protocol 99
ip nexthop add id 43 via 2001:db8:1::1 dev eth0
ip nexthop add id 44 via 2001:db8:1::1 fdb
ip nexthop add id 45 encap ip id 9 dst 192.0.2.7 via 192.0.2.1 dev eth0
ip nexthop add id 46 group 30/45
ip route add 10.1.0.0/16 via 192.0.2.1 metric 50 mtu lock 1300 advmss 1200 window 5000 rtt 100ms rttvar 50ms proto static
ip route add 10.1.0.0/16 via 198.51.100.1 metric 60 proto dhcp
ip route add 10.2.0.0/16 via 192.0.2.1 features ecn congctl reno fastopen_no_cookie 1 quickack 1 initcwnd 20 initrwnd 30 hoplimit 33 rto_min 20ms
ip route add 10.3.0.0/16 encap ip id 100 dst 192.0.2.1 via 192.0.2.1 dev eth0
ip route add 10.4.0.0/16 encap ip6 id 100 dst 2001:db8:1::1 via 192.0.2.1 dev eth0
ip route add 10.5.0.0/16 encap seg6 mode encap segs 2001:db8:1::1,2001:db8:2::1 dev eth0
ip route add 10.6.0.0/16 realm 7 via 192.0.2.1
ip route add 10.7.0.0/16 tos 0x10 via 192.0.2.1
ip route add 10.8.8.0/24 via 203.0.113.99 dev eth0 onlink
ip route add 10.9.0.0/16 nexthop via 192.0.2.1 weight 3 nexthop via inet6 2001:db8:2::1 dev eth1 weight 200 nexthop dev tun0 weight 2
ip route add 10.10.0.0/16 nhid 40
ip route add 10.11.0.0/16 nhid 41
ip route add 10.12.0.0/16 nhid 43
ip route add 10.13.0.0/16 nhid 46
ip route add 10.14.0.0/16 dev tun0 src 10.8.0.2 scope link
ip route add blackhole 10.15.0.0/16 table 4000000000
ip route add prohibit 10.16.0.0/16 metric 4294967295
ip route add unreachable 10.17.0.0/16
ip route add throw 10.18.0.0/16 table 200
ip route add default via 198.51.100.1 table 200 proto 77
ip route append 10.19.0.0/16 via 192.0.2.254
ip route append 10.19.0.0/16 via 192.0.2.1
ip -6 route add 2001:db8:a1::/48 encap seg6 mode inline segs 2001:db8:1::1 dev eth0
ip -6 route add 2001:db8:a2::/48 encap seg6 mode encap segs 2001:db8:1::1,2001:db8:2::1 via 2001:db8:1::1 dev eth0
ip -6 route add 2001:db8:a3::/64 encap seg6local action End.DX6 nh6 2001:db8:1::1 dev eth0
ip -6 route add 2001:db8:a4::/48 encap ip6 id 5 dst 2001:db8:1::9 via 2001:db8:1::1 dev eth0
ip -6 route add 2001:db8:a5::/48 encap ip id 5 dst 192.0.2.1 via 2001:db8:1::1 dev eth0
ip -6 route add 2001:db8:a6::/48 nhid 43
ip -6 route add 2001:db8:a7::/48 via 2001:db8:1::1 pref low proto ra
ip -6 route add 2001:db8:a7::/48 via 2001:db8:2::1 pref high metric 2048
ip -6 route add 2001:db8:a8::/48 nexthop via 2001:db8:1::1 weight 5 nexthop via 2001:db8:2::1
ip -6 route add 2001:db8:a9::/48 from 2001:db8:1::/64 via 2001:db8:1::1
ip -6 route add 2001:db8:a9::/48 from 2001:db8:2::/64 via 2001:db8:2::1
ip -6 route add 2001:db8:aa::/48 via fe80::1 dev eth0 src 2001:db8:1::2 mtu lock 1280
ip -6 route add 2001:db8:ab::/48 dev tun0
ip -6 route add blackhole 2001:db8:ac::/48
ip -6 route add prohibit 2001:db8:ad::/48 table 200
ip -6 route add default via 2001:db8:2::1 table 200 metric 7
`

// TestRoutesAreTheHostsByteForByte compares dumps, without what is the moment's.
func TestRoutesAreTheHostsByteForByte(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	l.onHostAll(t, exotic)
	l.mirror(t, Options{})
	h, err := observe(int(l.host.NS().Fd()))
	must(t, err)
	w, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	same := rtnl.IndexMap{}
	for _, k := range h.links {
		same[k.Index] = k.Index
		if w.byName(k.Name) != k.Index {
			t.Fatalf("link %s is number %d on the host and %d in the twin", k.Name, k.Index, w.byName(k.Name))
		}
	}
	compareRaw(t, "route", h.routes, w.routes, func(m []byte) ([]byte, string) {
		b, _ := rtnl.Route(m, same)
		return b, rtnl.RouteText(m, h.name)
	})
	compareRaw(t, "nexthop", h.nexthops, w.nexthops, func(m []byte) ([]byte, string) {
		b, _ := rtnl.Nexthop(m, same)
		return b, rtnl.NexthopText(m, h.name)
	})
	if n := strings.Join(l.twin.Notes(), "\n"); strings.Contains(n, "is not in the twin") {
		t.Errorf("not everything was mirrored:\n%s", n)
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("difference: %q", got)
	}
}

// compareRaw compares two dumps in order, IPv4 before IPv6.
func compareRaw(t *testing.T, what string, host, twin [][]byte, normal func([]byte) ([]byte, string)) {
	t.Helper()
	var have [][]byte
	for _, m := range twin {
		b, _ := normal(m)
		have = append(have, b)
	}
	if len(host) != len(twin) {
		t.Errorf("%d %ss on the host, %d in the twin", len(host), what, len(twin))
	}
	for _, m := range host {
		b, text := normal(m)
		i := slices.IndexFunc(have, func(h []byte) bool { return bytes.Equal(h, b) })
		if i < 0 {
			t.Errorf("%s %s: %x is not in the twin", what, text, b)
			continue
		}
		have = slices.Delete(have, i, i+1)
	}
	for _, b := range have {
		t.Errorf("%s %x is in the twin only", what, b)
	}
}

// TestRulesAreTheHosts has one of every selector and action.
func TestRulesAreTheHosts(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	l.onHostAll(t, `
ip rule add pref 200 iif tun9 lookup 9
ip rule add pref 201 oif eth1 lookup 9
ip rule add pref 202 tun_id 77 lookup 9
ip rule add pref 203 goto 204
ip rule add pref 204 nop
ip rule add pref 205 l3mdev
ip rule add pref 206 dsfield 0x10 lookup 9
ip rule add pref 207 sport 100-200 dport 5353 ipproto udp lookup 9
ip rule add pref 208 suppress_ifgroup 3 lookup main
ip rule add pref 209 suppress_prefixlength 0 lookup main
ip rule add pref 210 uidrange 1000-1001 lookup 9
ip rule add pref 211 from 10.0.0.0/8 realms 3/4 lookup 9
ip rule add pref 212 to 10.0.0.0/8 protocol 44 lookup 4000000000
ip rule add pref 213 fwmark 0x10/0xf0 unreachable
ip rule add pref 214 from 198.51.100.2 prohibit
ip rule add pref 215 not from 192.0.2.0/24 fwmark 7 blackhole
ip rule add pref 215 to 10.1.0.0/16 lookup 10
ip rule add pref 215 to 10.1.0.0/16 goto 32766
ip -6 rule add pref 200 from 2001:db8:2::/64 iif lo ipproto 58 lookup 9
ip -6 rule add pref 201 to 2001:db8:9::/48 oif eth0 fwmark 1 goto 300
ip rule del pref 32767
`)
	l.mirror(t, Options{})
	h, err := observe(int(l.host.NS().Fd()))
	must(t, err)
	w, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	var was, now []string
	for _, m := range h.rules {
		was = append(was, fmt.Sprintf("%x", rtnl.Rule(m)))
	}
	for _, m := range w.rules {
		now = append(now, fmt.Sprintf("%x", rtnl.Rule(m)))
	}
	if !slices.Equal(was, now) {
		t.Errorf("rules of the host\n%s\nin the twin\n%s", strings.Join(was, "\n"), strings.Join(now, "\n"))
	}
	for _, want := range []string{"ipproto udp", "tun_id 77", "realms 3/4", "uidrange 1000-1001", "fwmark 0x10 mask 0xf0 unreachable"} {
		if !slices.ContainsFunc(w.rules, func(m []byte) bool { return strings.Contains(rtnl.RuleText(m), want) }) {
			t.Errorf("no rule says %q", want)
		}
	}
}

// TestLifetimes gives routes some: what the user set ends in the twin too and is
// no difference then, what a router advertised stays.
func TestLifetimes(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	l.onHostAll(t, `
ip -6 route add 2001:db8:b1::/48 via 2001:db8:1::1 expires 300
ip -6 route add 2001:db8:b2::/48 via 2001:db8:1::1 expires 2
ip -6 route add 2001:db8:b3::/48 via 2001:db8:1::1 expires 2 proto ra
`)
	l.mirror(t, Options{})
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("difference: %q", got)
	}
	routes := func() string {
		out, err := l.inside.Run(t.Context(), "ip", "-6", "route")
		must(t, err)
		return out
	}
	if got := routes(); !strings.Contains(got, "2001:db8:b1::/48 via 2001:db8:1::1 dev eth0 metric 1024 expires 2") {
		t.Errorf("no lifetime in:\n%s", got)
	}
	l.run(t, "ip -6 route del 2001:db8:b1::/48")
	want := "ip route del inet6 2001:db8:b1::/48 table main metric 1024 via 2001:db8:1::1 dev eth0 proto boot expires"
	// An expired route is listed until the kernel collects it.
	eventually(t, "the short route ends", func() bool {
		must(t, l.inside.Sysctl("ipv6/route/flush", "1"))
		return !strings.Contains(routes(), "2001:db8:b2::/48")
	})
	if got := l.lines(t); len(got) != 1 || got[0] != want {
		t.Errorf("difference: %q", got)
	}
	if got := routes(); !strings.Contains(got, "2001:db8:b3::/48") {
		t.Errorf("what the router advertised is gone:\n%s", got)
	}
}

// TestReplayOfManyRoutes packs more routes than one send takes.
func TestReplayOfManyRoutes(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	var batch strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&batch, "route add 10.%d.%d.0/24 via 192.0.2.1\n", i/250, i%250)
	}
	l.batch(t, batch.String())
	l.mirror(t, Options{})
	twin, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	if n := len(twin.routes); n < 2000 {
		t.Errorf("%d routes in the twin", n)
	}
}

// TestGatewayThatIsNoLongerOnLink mirrors routes whose gateway the kernel would
// refuse now: it looks only when a route is made.
func TestGatewayThatIsNoLongerOnLink(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	l.onHostAll(t, `
ip route add 10.70.0.0/24 dev eth0
ip route add 10.71.0.0/16 via 10.70.0.1
ip route add 10.72.0.0/16 nexthop via 10.70.0.1 nexthop via 198.51.100.1
ip route del 10.70.0.0/24 dev eth0
ip -6 route add 2001:db8:70::/64 dev eth0
ip -6 route add 2001:db8:71::/64 via 2001:db8:70::1
ip -6 route del 2001:db8:70::/64 dev eth0
`)
	l.mirror(t, Options{})
	h, err := observe(int(l.host.NS().Fd()))
	must(t, err)
	w, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	was, now := snapshot{}, snapshot{}
	h.describe(was)
	w.describe(now)
	for _, d := range (snapshot{KindRoute: was[KindRoute]}).difference(snapshot{KindRoute: now[KindRoute]}) {
		t.Errorf("host and twin differ: %s", d)
	}
	for _, n := range l.twin.Notes() {
		t.Errorf("note: %s", n)
	}
}

// TestStaticNeighborsAreCarried goes by way of a gateway whose MAC the host knows
// by configuration, so that the twin never asks for it.
func TestStaticNeighborsAreCarried(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	echo(t, l.server, "tcp", ":80")
	mac := l.macOf(t, l.gw1, "in")
	for _, state := range []string{"permanent", "noarp"} {
		t.Run(state, func(t *testing.T) {
			l.onHost(t, "ip neigh replace 192.0.2.1 lladdr "+mac+" dev eth0 nud "+state)
			l.mirror(t, Options{})
			l.seenAs(t, "tcp", "203.0.113.80:80")
			w, err := observe(int(l.inside.NS().Fd()))
			must(t, err)
			if len(w.neighbors) != 1 || !strings.Contains(rtnl.NeighborText(w.neighbors[0], w.name), "nud "+state) {
				t.Errorf("%d static neighbours in the twin: %q", len(w.neighbors), w.neighbors)
			}
		})
	}
}

// TestManyStaticNeighbors has more than the relay is told of.
func TestManyStaticNeighbors(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	l.onHost(t, "ip addr add 10.66.0.1/16 dev eth0")
	var lines strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&lines, "neigh add 10.66.%d.%d lladdr 02:00:00:00:%02x:%02x dev eth0 nud permanent\n", i/200+1, i%200+1, i/200, i%200)
	}
	l.batch(t, lines.String())
	echo(t, l.server, "tcp", ":80")
	l.mirror(t, Options{})
	l.seenAs(t, "tcp", "203.0.113.80:80")
	if notes := strings.Join(l.twin.Notes(), "\n"); !strings.Contains(notes, "1744 static neighbours are not in the twin") {
		t.Errorf("notes:\n%s", notes)
	}
}

// batch runs ip(8) with many lines on the lab's host.
func (l *testLab) batch(t testing.TB, lines string) {
	t.Helper()
	file := t.TempDir() + "/batch"
	must(t, os.WriteFile(file, []byte(lines), 0o600))
	_, err := l.host.Run(t.Context(), "ip", "-batch", file)
	must(t, err)
}

// onHostAll runs a list of command lines on the lab's host.
func (l *testLab) onHostAll(t testing.TB, lines string) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		l.onHost(t, line)
	}
}
