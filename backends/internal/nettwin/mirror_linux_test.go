package nettwin

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// rich gives the host one of everything that a twin must replay.
var rich = strings.TrimSpace(`
ip link add br0 type bridge
ip link set br0 up
ip addr add 172.17.0.1/16 dev br0
ip link add down0 type veth peer name down1
ip addr add 10.9.0.1/24 dev down0
ip link add p0 type veth peer name p1
ip link set p0 master br0
ip link set p0 up
ip link set p1 up
ip tuntap add tun0 mode tun
ip link set tun0 up mtu 1380
ip addr add 10.8.0.2 peer 10.8.0.1 dev tun0
ip link property add dev eth0 altname enp0s31f6-altname
ip link set eth0 alias uplink
ip addr add 192.0.2.30/24 dev eth0 label eth0:1
ip addr add 192.0.2.31/32 dev eth0 noprefixroute
ip addr add 10.255.0.1/32 dev lo
ip -6 addr add 2001:db8:1::beef/64 dev eth0 nodad preferred_lft 0
ip route add 10.1.0.0/16 via 192.0.2.1 metric 50 mtu lock 1300 proto static
ip route add 10.1.0.0/16 via 198.51.100.1 metric 60
ip route add 10.2.0.0/16 nexthop via 192.0.2.1 weight 3 nexthop via 198.51.100.1 weight 1
ip route add blackhole 10.3.0.0/16
ip route add unreachable 10.4.0.0/16 metric 4294967295
ip route add 10.5.0.0/16 via inet6 2001:db8:1::1 dev eth0
ip route add 10.6.0.0/16 dev eth0 src 192.0.2.30
ip route add default via 198.51.100.1 table 200
ip route add throw 10.7.0.0/16 table 200
ip route add 10.20.0.0/16 encap ip id 100 dst 192.0.2.1 via 192.0.2.1 dev eth0
ip nexthop add id 10 via 192.0.2.1 dev eth0
ip nexthop add id 11 via 198.51.100.1 dev eth1
ip nexthop add id 20 group 10,2/11
ip route add 10.30.0.0/16 nhid 10
ip route add 10.31.0.0/16 nhid 20
ip -6 route add 2001:db8:aa::/48 via 2001:db8:1::1 pref high
ip -6 route add 2001:db8:ab::/48 nexthop via 2001:db8:1::1 nexthop via 2001:db8:2::1
ip -6 route add 2001:db8:ac::/48 from 2001:db8:1::/64 via 2001:db8:1::1
ip -6 route add unreachable 2001:db8:ad::/48
ip rule add pref 100 from 198.51.100.2 lookup 200
ip rule add pref 101 fwmark 0x10/0xff lookup 200
ip rule add pref 102 to 10.40.0.0/16 iif lo ipproto tcp dport 80-90 lookup 200
ip rule add pref 103 not from all uidrange 1000-1001 prohibit
ip rule add pref 104 lookup main suppress_prefixlength 0
ip -6 rule add pref 100 from 2001:db8:2::/64 lookup 200
ip neigh add 192.0.2.50 lladdr 02:11:22:33:44:55 dev eth0 nud permanent
ip neigh add proxy 192.0.2.51 dev eth0
sysctl -qw net.ipv4.conf.eth1.rp_filter=2
sysctl -qw net.ipv4.tcp_keepalive_time=123
sysctl -qw net.ipv6.conf.eth1.forwarding=1
`)

// TestMirrorIsFaithful compares the twin with a host that has one of everything,
// in words.
func TestMirrorIsFaithful(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"), nstest.Tool("sysctl"))
	l.onHostAll(t, rich)
	l.mirror(t, Options{})
	host, err := observe(int(l.host.NS().Fd()))
	must(t, err)
	twin, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	was, now := snapshot{}, snapshot{}
	host.describe(was)
	twin.describe(now)
	for _, k := range []Kind{KindAddress, KindNexthop, KindRoute, KindRule} {
		for _, d := range (snapshot{k: was[k]}).difference(snapshot{k: now[k]}) {
			t.Errorf("host and twin differ: %s", d)
		}
	}
	for _, d := range (snapshot{KindNeighbor: was[KindNeighbor]}).difference(snapshot{KindNeighbor: now[KindNeighbor]}) {
		if d.Key != "192.0.2.50 dev eth0" || !strings.Contains(d.Now, "lladdr 02:6e:73:") {
			t.Errorf("host and twin differ: %s", d)
		}
	}
	for _, h := range host.links {
		i := slices.IndexFunc(twin.links, func(l rtnl.Link) bool { return l.Name == h.Name })
		if i < 0 {
			t.Errorf("link %s is not in the twin", h.Name)
			continue
		}
		w := twin.links[i]
		if h.Index != w.Index || h.Up() != w.Up() || h.MTU != w.MTU || h.Alias != w.Alias || !slices.Equal(h.AltNames, w.AltNames) ||
			h.Carrier != w.Carrier && h.Up() || len(h.MAC) == 6 && h.MAC.String() != w.MAC.String() {
			t.Errorf("link %s:\nhost %+v\ntwin %+v", h.Name, h, w)
		}
		if w.Type != h.Type || w.QueueLen != queueLen && !w.Loopback() {
			t.Errorf("link %s is of another type or has a short queue: %+v", h.Name, w)
		}
		const told = unix.IFF_NOARP | unix.IFF_POINTOPOINT | unix.IFF_MULTICAST | unix.IFF_BROADCAST
		if h.Flags&told != w.Flags&told {
			t.Errorf("link %s has flags %#x, in the twin %#x", h.Name, h.Flags, w.Flags)
		}
	}
	for _, k := range []string{"ipv4/conf/eth1/rp_filter", "ipv4/conf/all/rp_filter", "ipv4/tcp_keepalive_time", "ipv6/conf/eth1/forwarding", "ipv6/conf/all/forwarding", "ipv4/ip_forward"} {
		if host.sysctls[k] != twin.sysctls[k] {
			t.Errorf("sysctl %s: host %q, twin %q", k, host.sysctls[k], twin.sysctls[k])
		}
	}
	notes := strings.Join(l.twin.Notes(), "\n")
	for _, want := range []string{"link br0 (bridge) is in the twin a plain Ethernet", "link tun0 (tun) is in the twin a tun;", "link p0 is no port of br0"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note %q in:\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "is not in the twin") {
		t.Errorf("something was not mirrored:\n%s", notes)
	}
}

// TestResetFollowsTheHost changes both sides and resets.
func TestResetFollowsTheHost(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("ip"), nstest.Tool("nft"), nstest.Tool("tc"))
	echo(t, l.server, "tcp", ":80")
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	l.mirror(t, Options{})
	must(t, l.twin.AddRelay(7890))
	for _, line := range []string{
		"ip link add v0 type veth peer name v1", "ip link del eth1", "ip addr add 10.0.0.1/8 dev lo", "ip route replace default via 192.0.2.254",
		"ip rule add pref 9 blackhole", "ip rule del pref 32767", "nft table ip f { chain c { type filter hook output priority 0; policy drop; }; }",
		"ip nexthop add id 5 blackhole", "tc qdisc add dev lo root pfifo", "ip link set lo down",
	} {
		l.run(t, line)
	}
	must(t, l.host.Route("10.77.0.0/16", "192.0.2.1"))
	must(t, l.twin.Reset(t.Context()))
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("after a reset: %q", got)
	}
	l.seenAs(t, "tcp", "203.0.113.80:80")
	if got, err := l.ask("127.0.0.1:7890"); got != "host-proxy" || err != nil {
		t.Errorf("relay after a reset: got %q, %v", got, err)
	}
	out, err := l.inside.Run(t.Context(), "ip", "route")
	must(t, err)
	if !strings.Contains(out, "10.77.0.0/16 via 192.0.2.1") || !strings.Contains(out, "default via 192.0.2.1 ") {
		t.Errorf("routes after a reset:\n%s", out)
	}
	if out, _ := l.inside.Run(t.Context(), "nft", "list", "tables"); strings.Contains(out, "ip f") {
		t.Errorf("tables after a reset:\n%s", out)
	}
}
