package linuxns

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// finding returns the finding of a name in the network of the calling thread.
func finding(t *testing.T, name string) backends.Finding {
	t.Helper()
	found := hostFindings(t.Context())
	i := slices.IndexFunc(found, func(f backends.Finding) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no finding %q in %+v", name, found)
	}
	return found[i]
}

func TestDoctorOnAPlainNetwork(t *testing.T) {
	nstest.New(t, nstest.Tool("ip"))
	run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "peer0")
	found := hostFindings(t.Context())
	if len(found) != len(topics) {
		t.Errorf("%d findings of %d topics", len(found), len(topics))
	}
	for _, f := range found {
		if f.Status != "ok" || f.Detail == "" || f.Fix != "" {
			t.Errorf("%+v", f)
		}
	}
}

func TestDoctorOnAnUnusualNetwork(t *testing.T) {
	const wired = "ip link add eth0 type veth peer name peer0; ip link set eth0 up; ip link set peer0 up; "
	for _, row := range []struct {
		name, set     string
		finding       string
		status, holds string // a part of what it says
	}{
		{
			"strict on all interfaces", wired + "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 0 >/proc/sys/net/ipv4/conf/eth0/rp_filter",
			"reverse path filter", "ok", "strict on ",
		},
		{
			"strict on one", wired + "for i in all peer0; do echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter; done; echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter",
			"reverse path filter", "ok", "strict on eth0:",
		},
		{
			"loose wins over strict", wired + "echo 2 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter",
			"reverse path filter", "ok", "not strict",
		},
		{
			"a rule with a mark of lanes", "ip rule add fwmark 0x5b000000/0xff000000 lookup 77",
			"lane numbers", "ok", "its mark is in the range of lanes",
		},
		{
			"a rule before the place of lanes", "ip rule add pref 9 to 203.0.113.0/24 lookup 77",
			"lane numbers", "ok", "rules of lanes go before it",
		},
		{
			"a packet filter with a mark of lanes", "nft add table ip m; nft add chain ip m out '{ type route hook output priority -150; }'; nft add rule ip m out tcp dport 80 meta mark set 0x5b000001",
			"lane numbers", "ok", "mark 0x5b000001/0xffffffff of the packet filter: it is in the range of lanes",
		},
		{"a table of lanes", "ip rule add pref 7000 lookup 1526726656", "lane numbers", "ok", "its table is in the range"},
		{"a protocol like ours", "ip rule add pref 7000 lookup 77 protocol 91", "lane numbers", "ok", "is left alone"},
		{
			"a rule that nothing comes before", "ip rule add pref 0 lookup 77",
			"lane numbers", "degraded", "nothing can come before it",
		},
		{
			"a router's default", wired + "ip -6 route add default via fe80::1 dev eth0 proto ra",
			"router advertisements", "degraded", "by eth0 is a router's",
		},
		{
			"a router's default that outlives forwarding", wired + "ip -6 route add default via fe80::1 dev eth0 proto ra; echo 2 >/proc/sys/net/ipv6/conf/eth0/accept_ra",
			"router advertisements", "ok", "no default route",
		},
		{
			"a router's route that is no default", wired + "ip -6 route add 2001:db8::/64 dev eth0 proto ra",
			"router advertisements", "ok", "no default route",
		},
		{"a bridge", "ip link add br0 type bridge", "link kinds", "ok", "br0 (bridge)"},
		{"a port of a bridge", wired + "ip link add br0 type bridge; ip link set eth0 master br0", "link kinds", "ok", "br0 (bridge)"},
		{"a tun that nobody holds", "ip tuntap add mode tun tun7", "tun owners", "ok", "nobody visible holds tun7"},
		{
			"a nexthop object", wired + "ip nexthop add id 7 dev eth0; ip route add 192.0.2.0/24 nhid 7",
			"route kinds", "ok", "1 by a nexthop object",
		},
		{
			"a route for one source", wired + "ip -6 route add 2001:db8::/64 from 2001:db8:1::/64 dev eth0",
			"route kinds", "ok", "1 for some sources only",
		},
		{
			"an encapsulated route", wired + "ip address add 192.0.2.2/24 dev eth0; ip route add 198.51.100.0/24 encap mpls 100 via inet 192.0.2.1 || ip route add 198.51.100.0/24 encap ip id 7 dst 203.0.113.1 dev eth0",
			"route kinds", "degraded", "1 with an encapsulation",
		},
		{
			"firewalld's look at the way back", "nft add table inet fw; nft add chain inet fw pre '{ type filter hook prerouting priority -290; }'; nft add rule inet fw pre meta nfproto ipv6 fib saddr . mark . iif oif missing drop",
			"way back", "degraded", "inet fw chain pre",
		},
		{
			"a look at it that drops nothing", "nft add table inet fw; nft add chain inet fw pre '{ type filter hook prerouting priority -290; }'; nft add rule inet fw pre fib saddr . iif oif missing counter",
			"way back", "ok", "no packet filter",
		},
		{
			"a rule for a user", "nft add table inet fw; nft add chain inet fw out '{ type filter hook output priority 0; }'; nft add rule inet fw out meta skuid 1000 accept",
			"owners", "degraded", "inet fw chain out: on the host root sends",
		},
		{
			"a transparent proxy", "nft add table ip tp; nft add chain ip tp out '{ type nat hook output priority -100; }'; nft add rule ip tp out meta skuid != 77 tcp dport 80 redirect to :12345",
			"transparent proxy", "ok", "led to port 12345",
		},
		{
			"another translation", "nft add table ip tp; nft add chain ip tp out '{ type nat hook output priority -100; }'; nft add rule ip tp out ip daddr 192.0.2.9 redirect",
			"transparent proxy", "ok", "where the two differ a circuit is Unverifiable",
		},
		{"ping for all", "echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range", "ping", "ok", "by ping sockets"},
		{"ping for nobody", "echo 1 0 >/proc/sys/net/ipv4/ping_group_range", "ping", "ok", "by raw sockets: net.ipv4.ping_group_range is 1 0"},
		{"ping for users only", "echo 1000 2000 >/proc/sys/net/ipv4/ping_group_range", "ping", "ok", "is 1000 2000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			nstest.New(t, nstest.Tool("ip"), nstest.Tool("nft"), nstest.TUN, nstest.NFT)
			run(t, "sh", "-ec", row.set)
			before := settled(t)
			f := finding(t, row.finding)
			if f.Status != row.status || !strings.Contains(f.Detail, row.holds) || (f.Fix == "") == (row.status == "degraded") {
				t.Errorf("%+v, want %s and %q", f, row.status, row.holds)
			}
			if diff := gocmp.Diff(before, settled(t)); diff != "" {
				t.Errorf("the probe changed the host (-before +after):\n%s", diff)
			}
		})
	}
}

// settled is what of the thread's network does not change by itself: links that
// were just made get their carrier and addresses later.
func settled(t *testing.T) (lines []string) {
	t.Helper()
	for line := range strings.Lines(nstest.HostDump(t)) {
		if kind, _, _ := strings.Cut(line, " "); kind == "rule" || kind == "nft" || kind == "sysctl" {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestDoctorKnowsWhoHoldsATun: it is this process.
func TestDoctorKnowsWhoHoldsATun(t *testing.T) {
	nstest.New(t, nstest.TUN)
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("utun3")
	if err != nil {
		t.Fatal(err)
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("utun3 is %s (%d)'s", comm("/proc/self"), os.Getpid())
	if f := finding(t, "tun owners"); f.Status != "ok" || !strings.Contains(f.Detail, want) {
		t.Errorf("%+v, want %q", f, want)
	}
}

// TestDoctorOnVRFs is told of them: a kernel may lack them.
func TestDoctorOnVRFs(t *testing.T) {
	h := &hostNet{links: []rtnl.Link{{Index: 2, Name: "eth0", Master: 4}, {Index: 3, Name: "eth1"}, {Index: 4, Name: "blue", Kind: "vrf"}}}
	f, err := linkKinds(h)
	if err != nil || f.Status != "degraded" || f.Fix == "" || !strings.HasPrefix(f.Detail, "eth0 of blue:") {
		t.Errorf("%+v, %v", f, err)
	}
}
