package nettwin

import (
	"regexp"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// lines renders the difference.
func (l *testLab) lines(t *testing.T) []string {
	t.Helper()
	ds, err := l.twin.Difference()
	must(t, err)
	var out []string
	for _, d := range ds {
		out = append(out, d.String())
	}
	return out
}

// inside runs a command line in the twin.
func (l *testLab) run(t *testing.T, line string) {
	t.Helper()
	_, err := l.inside.Run(t.Context(), strings.Fields(line)...)
	must(t, err)
}

func TestFreshTwinHasNoDifference(t *testing.T) {
	l := newLab(t, nstest.NFT)
	echo(t, l.server, "tcp", ":80")
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	l.mirror(t, Options{Relay: []uint16{7890}})
	// Traffic, neighbours, counters, redirections.
	l.seenAs(t, "tcp", "203.0.113.80:80")
	l.seenAs(t, "tcp", "[2001:db8:80::80]:80")
	_, _ = l.ask("198.51.100.1:1")
	_, _ = l.ask("127.0.0.1:7890")
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("nobody changed anything, but:\n%s", strings.Join(got, "\n"))
	}
}

func TestDifferenceOfEachKind(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("ip"), nstest.Tool("nft"), nstest.Tool("tc"), nstest.Tool("sysctl"))
	for _, c := range []struct {
		kind   Kind
		change []string
		want   []string
	}{
		{
			KindLink,
			[]string{"ip link set eth1 mtu 1300"},
			[]string{"ip link set eth1 up type tun address MAC mtu 1300 txqueuelen 10000 (was up type tun address MAC mtu 1420 txqueuelen 10000)"},
		},
		{
			KindLink,
			[]string{"ip link add v0 type veth peer name v1"},
			[]string{"ip link add v0 down type veth address MAC mtu 1500 txqueuelen 1000", "ip link add v1 down type veth address MAC mtu 1500 txqueuelen 1000"},
		},
		{
			KindAddress,
			[]string{"ip addr add 192.0.2.9/24 dev eth0"},
			[]string{"ip address add 192.0.2.9/24 dev eth0"},
		},
		{
			KindNexthop,
			[]string{"ip nexthop add id 7 via 192.0.2.1 dev eth0"},
			[]string{"ip nexthop add id 7 dev eth0 via 192.0.2.1 proto 0"},
		},
		{
			KindRoute,
			[]string{"ip route replace default via 192.0.2.254"},
			[]string{"ip route replace default table main via 192.0.2.254 dev eth0 proto boot (was via 192.0.2.1 dev eth0 proto boot)"},
		},
		{
			KindRoute,
			[]string{"ip route add 10.0.0.0/8 via 198.51.100.1 table 77"},
			[]string{"ip route add 10.0.0.0/8 table 77 via 198.51.100.1 dev eth1 proto boot"},
		},
		{
			KindRoute,
			[]string{"ip -6 route del default"},
			[]string{"ip route del inet6 default table main metric 1024 via 2001:db8:1::1 dev eth0 proto boot"},
		},
		{
			KindRule,
			[]string{"ip rule add pref 9 from all blackhole"},
			[]string{"ip rule add pref 9 from all blackhole"},
		},
		{
			KindNeighbor,
			[]string{"ip neigh add 192.0.2.77 lladdr 02:00:00:00:00:01 dev eth0 nud permanent"},
			[]string{"ip neigh add 192.0.2.77 dev eth0 lladdr 02:00:00:00:00:01 nud permanent"},
		},
		{
			KindNFT,
			[]string{"nft add table inet f"},
			[]string{"nft add table inet f"},
		},
		{
			KindSysctl,
			[]string{"sysctl -qw net.ipv4.conf.eth0.rp_filter=2"},
			[]string{`sysctl -w net.ipv4.conf.eth0.rp_filter="2" (was "1")`},
		},
		{
			KindQdisc,
			[]string{"tc qdisc add dev eth0 clsact"},
			[]string{"tc qdisc add dev eth0 parent ffff:fff1 clsact handle ffff:"},
		},
	} {
		t.Run(string(c.kind)+"/"+c.change[0], func(t *testing.T) {
			l.mirror(t, Options{})
			for _, line := range c.change {
				l.run(t, line)
			}
			ds, err := l.twin.Difference()
			must(t, err)
			var got []string
			for _, d := range ds {
				if d.Kind == c.kind { // a new link brings sysctls and addresses with it
					got = append(got, macs.ReplaceAllString(d.String(), "address MAC"))
				}
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// macs finds the link addresses that the kernel made up.
var macs = regexp.MustCompile(`address [0-9a-f:]{17}`)
