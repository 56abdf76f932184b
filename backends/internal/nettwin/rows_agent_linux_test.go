package nettwin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// firewalled gives the lab's host the firewall of a machine with docker: nothing is
// forwarded, nothing comes in that was not asked for.
func (l *testLab) firewalled(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, args := range []string{
			"-A INPUT -i lo -j ACCEPT", "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-P INPUT DROP",
			"-N DOCKER-USER", "-N DOCKER-FORWARD", "-A FORWARD -j DOCKER-USER", "-A FORWARD -j DOCKER-FORWARD", "-P FORWARD DROP",
		} {
			l.onHost(t, tool+" "+args)
		}
	}
	l.onHost(t, "ip6tables -A INPUT -p ipv6-icmp -j ACCEPT")
	for _, s := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		must(t, l.host.Sysctl(s, "0"))
	}
}

// outlook is what a node gets from the server: how it is seen, or "fail".
func outlook(t *testing.T, n *netlab.Node) string {
	t.Helper()
	var out []string
	for _, addr := range []string{"203.0.113.80", "[2001:db8:80::80]"} {
		for _, network := range []string{"tcp", "udp"} {
			got, err := pathWithin(t, n, network, addr+":80", 700*time.Millisecond)
			if err != nil {
				got = "fail"
			}
			out = append(out, got)
		}
	}
	return strings.Join(out, ", ")
}

const (
	viaGW1  = "one 192.0.2.2, one 192.0.2.2, one 2001:db8:1::2, one 2001:db8:1::2"
	nowhere = "fail, fail, fail, fail"
)

// TestDefaultConnectivity needs of the host no forwarding, no address translation,
// no rule and no sysctl.
func TestDefaultConnectivity(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("iptables"), nstest.Tool("ip6tables"))
	l.firewalled(t)
	l.paths(t, "80")
	before := dump(t, int(l.host.NS().Fd()))
	l.mirror(t, Options{})
	if got := outlook(t, l.inside); got != viaGW1 {
		t.Errorf("the twin gets %s, want %s", got, viaGW1)
	}
	if got := dump(t, int(l.host.NS().Fd())); got != before {
		t.Errorf("the host is\n%s\nbefore it was\n%s", got, before)
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("difference: %q", got)
	}
}

// TestAgentBreaksItsTwin does what an agent does to a network. Each row begins
// with a twin as it was made, the host is looked at after each.
func TestAgentBreaksItsTwin(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("ip"), nstest.Tool("iptables"), nstest.Tool("ip6tables"))
	l.firewalled(t)
	l.paths(t, "80")
	keeper := l.lanes(t)
	before := dump(t, int(l.host.NS().Fd()))
	l.mirror(t, Options{Ways: keeper})
	for _, c := range []struct {
		name, change, want string
		lines              []string   // of the difference
		met                [2]outcome // how connecting ends, where that is no matter of time
	}{
		{"the default routes are deleted", "ip route del default\nip -6 route del default", nowhere, []string{
			"ip route del default table main via 192.0.2.1", "ip route del inet6 default table main metric 1024 via 2001:db8:1::1",
		}, [2]outcome{unreachable, unreachable}},
		// The kernel takes IPv6 addresses and every route of a link with it.
		{"the link is set down", "ip link set eth0 down", nowhere, []string{
			"ip link set eth0 down", "ip address del 2001:db8:1::2/64 dev eth0", "ip route del default table main via 192.0.2.1",
			"ip route del 192.0.2.0/24 table main", "ip route del inet6 default table main",
		}, [2]outcome{unreachable, unreachable}},
		{
			"the link is set down and all made again",
			"ip link set eth0 down\nip link set eth0 up\nip -6 addr add 2001:db8:1::2/64 dev eth0 nodad\nip route add default via 192.0.2.1\nip -6 route add default via 2001:db8:1::1",
			viaGW1, nil,
			[2]outcome{answered, answered},
		},
		{"the addresses are flushed", "ip addr flush dev eth0", nowhere, []string{
			"ip address del 192.0.2.2/24 dev eth0", "ip address del 2001:db8:1::2/64 dev eth0", "ip route del default table main via 192.0.2.1",
		}, [2]outcome{unreachable, silence}},
		{"a rule swallows all", "ip rule add pref 9 blackhole\nip -6 rule add pref 9 blackhole", nowhere, []string{
			"ip rule add pref 9 from all blackhole", "ip rule add inet6 pref 9 from all blackhole",
		}, [2]outcome{"dial tcp 203.0.113.80:80: connect: invalid argument", "dial tcp [2001:db8:80::80]:80: connect: invalid argument"}},
		{"a route swallows all", "ip route replace blackhole default\nip -6 route add unreachable default metric 1", nowhere, []string{
			"ip route replace default table main blackhole", "ip route add inet6 default table main metric 1 unreachable",
		}, [2]outcome{"dial tcp 203.0.113.80:80: connect: invalid argument", unreachable}},
		{"the gateway is nobody", "ip route replace default via 192.0.2.77\nip -6 route replace default via 2001:db8:1::77", nowhere, nil, [2]outcome{}},
		{"another gateway", "ip route replace default via 192.0.2.254\nip -6 route replace default via 2001:db8:1::fe", strings.ReplaceAll(viaGW1, "one", "three"), nil, [2]outcome{answered, answered}},
	} {
		t.Run(c.name, func(t *testing.T) {
			must(t, l.twin.Reset(t.Context()))
			for line := range strings.Lines(c.change) {
				l.run(t, line)
			}
			if got := outlook(t, l.inside); got != c.want {
				t.Errorf("the twin gets %s, want %s", got, c.want)
			}
			if got := outlook(t, l.host); got != viaGW1 {
				t.Errorf("the host gets %s, want %s", got, viaGW1)
			}
			if got := meets(l.inside, c.met); c.met[0] != "" && got != c.met {
				t.Errorf("the twin meets %q, want %q", got, c.met)
			}
			lines := strings.Join(l.lines(t), "\n")
			for _, want := range c.lines {
				if !strings.Contains(lines, want) {
					t.Errorf("no %q in the difference:\n%s", want, lines)
				}
			}
		})
	}
	must(t, errors.Join(l.twin.Close(), keeper.Close()))
	if got := dump(t, int(l.host.NS().Fd())); got != before {
		t.Errorf("the host is\n%s\nbefore it was\n%s", got, before)
	}
}
