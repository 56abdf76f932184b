package nettwin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestTrafficIsNoDifference uses the twin for a while in every way that leaves
// traces in a kernel: counters, neighbours that answer and that do not, cached
// routes, tracked connections, timers of sets and addresses.
func TestTrafficIsNoDifference(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"), nstest.Tool("ip"), nstest.Tool("ping"))
	_, err := l.host.Run(t.Context(), "nft", `
table inet count {
	counter every { }
	set recent { type ipv4_addr; flags timeout; timeout 1h; elements = { 203.0.113.80 timeout 30m } }
	chain out { type filter hook output priority 0; policy accept; counter name every; ct state new counter; ip daddr @recent counter accept; }
	chain in { type filter hook input priority 0; policy accept; ct state established,related counter; limit rate 1000/second counter; }
}`)
	must(t, err)
	l.onHostAll(t, `
ip addr add 192.0.2.40/24 dev eth0 valid_lft 900 preferred_lft 800
ip -6 addr add 2001:db8:1::40/64 dev eth0 nodad valid_lft 900 preferred_lft 0
ip -6 route add 2001:db8:b1::/48 via 2001:db8:1::1 expires 300
`)
	echo(t, l.server, "tcp", ":80")
	echoUDP(t, l.server, ":53")
	l.mirror(t, Options{})
	rounds := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) || rounds < 2; rounds++ {
		for _, addr := range []string{"203.0.113.80", "[2001:db8:80::80]"} {
			l.seenAs(t, "tcp", addr+":80")
			if _, err := l.datagram(addr+":53", strings.Repeat("q", 1400)); err != nil {
				t.Error(err)
			}
		}
		_ = l.connect("tcp", "203.0.113.80:81", time.Second)             // refused
		_ = l.connect("tcp", "192.0.2.77:80", 10*time.Millisecond)       // nobody
		_ = l.connect("tcp", "[2001:db8:1::77]:80", 10*time.Millisecond) // nobody
		// Whether it is answered is another test's business.
		_, _ = l.inside.Run(t.Context(), "ping", "-n", "-c1", "-W1", "203.0.113.80")
		l.run(t, "ip route get 203.0.113.80")
		l.run(t, "ip -6 route get 2001:db8:80::80")
		if got := l.lines(t); len(got) != 0 {
			t.Fatalf("after %d rounds of traffic: %q", rounds+1, got)
		}
	}
}

// TestShapedTrafficIsNoDifference shapes inside and then sends: the line stays.
func TestShapedTrafficIsNoDifference(t *testing.T) {
	l := newLab(t, nstest.Tool("tc"))
	echo(t, l.server, "tcp", ":80")
	l.mirror(t, Options{})
	l.run(t, "tc qdisc add dev eth0 root handle 1: htb")
	before := l.lines(t)
	for range 5 {
		l.seenAs(t, "tcp", "203.0.113.80:80")
	}
	if got := l.lines(t); len(before) != 1 || !slices.Equal(got, before) {
		t.Errorf("before traffic %q, after it %q", before, got)
	}
}

// TestOneChangeIsOneLine makes one change of each kind that has no consequences
// of its own.
func TestOneChangeIsOneLine(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("ip"), nstest.Tool("nft"), nstest.Tool("tc"), nstest.Tool("sysctl"))
	l.onHostAll(t, `
ip tuntap add tun0 mode tun
ip link set tun0 up
ip nexthop add id 10 via 192.0.2.1 dev eth0
ip route add 10.1.0.0/16 via 192.0.2.1
ip route add 10.2.0.0/16 via 192.0.2.1 metric 5
ip rule add pref 50 from 10.0.0.0/8 lookup 9
ip neigh add 192.0.2.50 lladdr 02:11:22:33:44:55 dev eth0 nud permanent
`)
	l.mirror(t, Options{})
	for _, c := range []struct{ line, want string }{
		{"ip link set eth1 mtu 1300", "ip link set eth1 "},
		{"ip link set eth1 address 02:00:00:00:00:99", "ip link set eth1 "},
		{"ip link set eth1 arp off", "ip link set eth1 "},
		{"ip link set eth0 promisc on", "ip link set eth0 "},
		{"ip link set eth0 txqueuelen 77", "ip link set eth0 "},
		{"ip link set eth0 alias x", "ip link set eth0 "},
		{"ip link property add dev eth0 altname other", "ip link set eth0 "},
		{"ip link set eth0 group 7", "ip link set eth0 "},
		{"ip addr add 192.0.2.9/24 dev eth0", "ip address add 192.0.2.9/24 dev eth0"},
		{"ip addr add 10.7.0.1/32 dev lo", "ip address add 10.7.0.1/32 dev lo"},
		{"ip -6 addr add 2001:db8:1::9/128 dev eth0 noprefixroute", "ip address add 2001:db8:1::9/128 dev eth0"},
		{"ip addr change 192.0.2.2/24 dev eth0 valid_lft 100 preferred_lft 50", ""},
		{"ip addrlabel add prefix 2001:db8:1::/64 label 77", "ip addrlabel add prefix 2001:db8:1::/64 label 77"},
		{"ip addrlabel del prefix 2002::/16 label 2", "ip addrlabel del prefix 2002::/16 label 2"},
		{"ip xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir out action block", "ip xfrm add policy dir out src 10.0.0.0/8 dst 10.1.0.0/16 priority 0 action block"},
		{"ip nexthop add id 11 blackhole", "ip nexthop add id 11 blackhole"},
		{"ip nexthop del id 10", "ip nexthop del id 10"},
		{"ip route replace default via 192.0.2.254", "ip route replace default table main"},
		{"ip route add default via 192.0.2.254 metric 50", "ip route add default table main metric 50"},
		{"ip route del 10.1.0.0/16", "ip route del 10.1.0.0/16"},
		{"ip route change 10.2.0.0/16 via 192.0.2.1 metric 5 mtu 1300", "ip route replace 10.2.0.0/16 table main metric 5 mtu 1300 via 192.0.2.1 dev eth0"},
		{"ip route add blackhole 10.3.0.0/16 table 99", "ip route add 10.3.0.0/16 table 99 blackhole"},
		{"ip -6 route add unreachable 2001:db8:3::/48", "ip route add inet6 2001:db8:3::/48"},
		{"ip -6 route add 2001:db8:4::/48 via 2001:db8:1::1 expires 900", "ip route add inet6 2001:db8:4::/48"},
		{"ip route add 10.4.0.0/16 dev tun0", "ip route add 10.4.0.0/16 table main dev tun0"},
		{"ip route add local 10.5.0.0/16 dev lo table 100", "ip route add 10.5.0.0/16 table 100 local dev lo"},
		{"ip rule add pref 60 uidrange 5-6 lookup 9", "ip rule add pref 60 from all uidrange 5-6 lookup 9"},
		{"ip rule add pref 50 from 10.0.0.0/8 lookup 10", "ip rule add pref 50 from 10.0.0.0/8 lookup 10"},
		{"ip rule del pref 50", "ip rule del pref 50"},
		{"ip -6 rule add pref 61 fwmark 5 prohibit", "ip rule add inet6 pref 61 from all fwmark 0x5 prohibit"},
		{"ip neigh change 192.0.2.50 lladdr 02:11:22:33:44:66 dev eth0 nud permanent", "ip neigh replace 192.0.2.50 dev eth0"},
		{"ip neigh add proxy 192.0.2.60 dev eth0", "ip neigh add proxy 192.0.2.60 dev eth0"},
		{"ip neigh add 192.0.2.61 lladdr 02:11:22:33:44:66 dev eth0 nud noarp", "ip neigh add 192.0.2.61 dev eth0"},
		{"nft add table ip mine", "nft add table ip mine"},
		{"sysctl -qw net.ipv4.tcp_keepalive_time=99", `sysctl -w net.ipv4.tcp_keepalive_time="99"`},
		{"sysctl -qw net.ipv6.conf.eth0.mtu=1290", `sysctl -w net.ipv6.conf.eth0.mtu="1290"`},
		{"tc qdisc add dev eth0 root pfifo", "tc qdisc "},
		{"tc qdisc add dev tun0 clsact", "tc qdisc add dev tun0 parent ffff:fff1 clsact"},
	} {
		t.Run(c.line, func(t *testing.T) {
			before := l.lines(t)
			l.run(t, c.line)
			got := slices.DeleteFunc(l.lines(t), func(line string) bool { return slices.Contains(before, line) })
			switch {
			case c.want == "" && len(got) == 0:
			case c.want == "" || len(got) != 1 || !strings.HasPrefix(got[0], c.want):
				t.Errorf("got\n%s\nwant one line %q", strings.Join(got, "\n"), c.want)
			}
		})
	}
}
