package nettwin

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// lookup resolves a name inside, at one server.
func (l *testLab) lookup(t *testing.T, server, network, name string) (netip.Addr, error) {
	t.Helper()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return l.inside.Dial(ctx, "udp", server)
	}}
	as, err := r.LookupNetIP(within(t, 5*time.Second), network, name+".")
	if err != nil {
		return netip.Addr{}, err
	}
	return as[0].Unmap(), nil
}

// fakeIPLab is a lab whose host has a fake-IP client with routes and rules of a kind.
func fakeIPLab(t *testing.T, lines []string) (*testLab, *fakeIP) {
	t.Helper()
	l := newLab(t, nstest.NFT, nstest.Tool("ip"))
	greet(t, l.server, ":443", "server\n")
	// Strict filtering would look for the way back of the client's own packets
	// without their mark, and find the tun.
	must(t, l.host.Sysctl("ipv4/conf/all/rp_filter", "2"))
	p := newFakeIP(t, l.host)
	for _, line := range lines {
		l.onHost(t, line)
	}
	p.listenNames(t, "127.0.0.1:53")
	return l, p
}

// hostFetches expects of the host itself what the inside is held against.
func (l *testLab) hostFetches(t *testing.T, addr, want string) {
	t.Helper()
	if got, err := fetchFrom(l.host, 0, addr); got != want || err != nil {
		t.Errorf("%s, from the host itself: got %q, %v; want %q", addr, got, err, want)
	}
}

// mirrorFakeIP makes the twin, with the client's name server in resolv.conf.
func (l *testLab) mirrorFakeIP(t *testing.T) {
	t.Helper()
	conf := t.TempDir() + "/resolv.conf"
	must(t, os.WriteFile(conf, []byte("nameserver 127.0.0.1\n"), 0o600))
	ways, err := lanes.Open(l.host.NS(), lanes.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, ways.Close()) })
	l.mirror(t, Options{ResolvConf: conf, Ways: ways})
}

// Ways in which such clients have the kernel send packets to their tun: only the
// fake addresses, or everything with a table of its own behind rules.
var (
	fakeRoutes = []string{"ip route add 198.18.0.0/15 dev tun0", "ip -6 route add fc00::/18 dev tun0"}
	autoRoute  = []string{
		"ip route add default dev tun0 table 2022", "ip -6 route add default dev tun0 table 2022",
		"ip rule add pref 8999 fwmark 0xff lookup main", "ip -6 rule add pref 8999 fwmark 0xff lookup main",
		"ip rule add pref 9000 to 198.18.0.0/30 lookup 2022", "ip -6 rule add pref 9000 to fc00::/126 lookup 2022",
		"ip rule add pref 9001 lookup main suppress_prefixlength 0", "ip -6 rule add pref 9001 lookup main suppress_prefixlength 0",
		"ip rule add pref 9002 not from all iif lo lookup 2022", "ip -6 rule add pref 9002 not from all iif lo lookup 2022",
		"ip rule add pref 9002 from 0.0.0.0 iif lo lookup 2022", "ip -6 rule add pref 9003 iif lo lookup 2022",
		"ip rule add pref 9003 from 198.18.0.1 iif lo lookup 2022",
	}
	autoRoutePlain = []string{
		"ip route add default dev tun0 table 2022", "ip -6 route add default dev tun0 table 2022",
		"ip rule add pref 9000 fwmark 0xff lookup main", "ip -6 rule add pref 9000 fwmark 0xff lookup main",
		"ip rule add pref 9001 lookup main suppress_prefixlength 0", "ip -6 rule add pref 9001 lookup main suppress_prefixlength 0",
		"ip rule add pref 9002 not fwmark 0xff lookup 2022", "ip -6 rule add pref 9002 not fwmark 0xff lookup 2022",
	}
)

// TestFakeIP resolves names with the client's servers and connects to the
// addresses that it made up.
func TestFakeIP(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
	}{
		{"routes to the fake addresses", fakeRoutes},
		{"a table behind rules by source", autoRoute},
		{"a table behind rules by mark", autoRoutePlain},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := fakeIPLab(t, c.lines)
			l.mirrorFakeIP(t)
			for _, server := range []string{"127.0.0.1:53", "198.18.0.2:53", "[fc00::2]:53"} {
				for i, network := range []string{"ip4", "ip6"} {
					name := "api" + strings.Trim(strings.NewReplacer(".", "-", ":", "-", "[", "", "]", "").Replace(server), "-") + ".example"
					a, err := l.lookup(t, server, network, name)
					if err != nil || !fakeNet[i].Contains(a) {
						t.Errorf("%s at %s: got %v, %v; want an address of %v", network, server, a, err, fakeNet[i])
						continue
					}
					addr := netip.AddrPortFrom(a, 443).String()
					l.hostFetches(t, addr, "via tun "+a.String())
					if got, err := l.fetch(addr); got != "via tun "+a.String() || err != nil {
						t.Errorf("connect to %s, which %s gave: got %q, %v", addr, server, got, err)
					}
				}
			}
			l.wantNoLimit(t)
		})
	}
}

// TestFakeIPTakesEverything connects to a real address on a host that sends all
// to the tun.
func TestFakeIPTakesEverything(t *testing.T) {
	for name, lines := range map[string][]string{"by source": autoRoute, "by mark": autoRoutePlain} {
		t.Run(name, func(t *testing.T) {
			l, _ := fakeIPLab(t, lines)
			l.mirrorFakeIP(t)
			for _, a := range []string{"203.0.113.80", "2001:db8:80::80"} {
				addr := net.JoinHostPort(a, "443")
				l.hostFetches(t, addr, "via tun "+a)
				if got, err := l.fetch(addr); got != "via tun "+a || err != nil {
					t.Errorf("%s: got %q, %v; want it by the tun", addr, got, err)
				}
			}
			l.wantNoLimit(t)
		})
	}
}

// TestFakeIPEnds ends the client under a twin that knew its tun.
func TestFakeIPEnds(t *testing.T) {
	l, p := fakeIPLab(t, fakeRoutes)
	l.mirrorFakeIP(t)
	a, err := l.lookup(t, "127.0.0.1:53", "ip4", "api.example")
	must(t, err)
	addr := netip.AddrPortFrom(a, 443).String()
	if got, err := l.fetch(addr); got != "via tun "+a.String() || err != nil {
		t.Fatalf("before: got %q, %v", got, err)
	}
	p.end()
	if got, err := l.fetch(addr); err == nil {
		t.Errorf("after the end: got %q", got)
	}
	ls, _, err := l.twin.Limits(0)
	must(t, err)
	// The link's address went with it.
	if len(ls) == 0 || ls[0].Kind != way.Link && ls[0].Kind != way.Source {
		t.Errorf("limits %+v, want one about the link or its address", ls)
	}
}
