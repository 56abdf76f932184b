package nettwin

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

const redirectAll = `table inet proxy {
	chain out {
		type nat hook output priority -100;
		meta skuid 990 return;
		ip daddr { 127.0.0.0/8, 192.0.2.0/24 } return;
		ip6 daddr { ::1, 2001:db8:1::/64 } return;
		tcp dport { 80, 443 } redirect to :12345;
	};
};`

// TestTransparentProxy has the host's nat send everything but the proxy's own
// streams to the proxy, in the ways in which that is written.
func TestTransparentProxy(t *testing.T) {
	iptables := func(tools ...string) func(*testing.T, *netlab.Node) {
		return func(t *testing.T, n *netlab.Node) {
			for _, tool := range tools {
				nstest.Require(t, nstest.Tool(tool))
				for _, rule := range []string{
					"-t nat -N REDSOCKS", "-t nat -A REDSOCKS -p tcp -j REDIRECT --to-ports 12345",
					"-t nat -A OUTPUT -p tcp --dport 443 -m owner ! --uid-owner 990 -j REDSOCKS",
				} {
					_, err := n.Run(t.Context(), append([]string{tool, "-w"}, strings.Fields(rule)...)...)
					must(t, err)
				}
			}
		}
	}
	nft := func(rules string) func(*testing.T, *netlab.Node) {
		return func(t *testing.T, n *netlab.Node) { load(t, n, rules) }
	}
	for _, c := range []struct {
		name, listen string
		rules        func(*testing.T, *netlab.Node)
		addrs        []string
	}{
		{"nft redirect, proxy on 127.0.0.1", "127.0.0.1:12345", nft(redirectAll), []string{"203.0.113.80:443"}},
		{"nft redirect, proxy on ::1", "[::1]:12345", nft(redirectAll), []string{"[2001:db8:80::80]:443"}},
		{"nft redirect, proxy on every address", "[::]:12345", nft(redirectAll), []string{"203.0.113.80:443", "[2001:db8:80::80]:443"}},
		{"nft dnat to the host's own address", "192.0.2.2:12345", nft("table ip n { chain o { type nat hook output priority -100; meta skuid != 990 tcp dport 443 dnat to 192.0.2.2:12345; }; };"), []string{"203.0.113.80:443"}},
		{"iptables-nft", "[::]:12345", iptables("iptables-nft", "ip6tables-nft"), []string{"203.0.113.80:443", "[2001:db8:80::80]:443"}},
		{"iptables-legacy", "[::]:12345", iptables("iptables-legacy", "ip6tables-legacy"), []string{"203.0.113.80:443", "[2001:db8:80::80]:443"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := redirectLab(t, "list ruleset")
			c.rules(t, l.host)
			transparentProxy(t, l.host, c.listen, "proxied", byNAT)
			l.mirror(t, Options{Ways: newNATTeller(t, l.host)})
			for _, addr := range c.addrs {
				if got, err := l.fetch(addr); got != "proxied "+addr || err != nil {
					t.Errorf("%s: got %q, %v; want it proxied", addr, got, err)
				}
			}
			l.wantNoLimit(t)
			if got, err := l.ask("127.0.0.1:12345"); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("the proxy's port itself, which is not relayed: got %q, %v; want connection refused", got, err)
			}
		})
	}
}

// TestTransparentProxyIsDown: the host's processes are refused, and so is the
// inside, without a word of a limit.
func TestTransparentProxyIsDown(t *testing.T) {
	l := redirectLab(t, redirectAll)
	ln := transparentProxy(t, l.host, "127.0.0.1:12345", "proxied", byNAT)
	l.mirror(t, Options{Ways: newNATTeller(t, l.host)})
	if got, err := l.fetch("203.0.113.80:443"); got != "proxied 203.0.113.80:443" || err != nil {
		t.Fatalf("before: got %q, %v", got, err)
	}
	must(t, ln.Close())
	must(t, l.twin.Look()) // looks at the host now
	if got, err := l.fetch("203.0.113.80:443"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("got %q, %v; want connection refused", got, err)
	}
	l.wantNoLimit(t)
}

// TestTransparentProxyInside starts one inside, on the same port, bound in the
// plainest way while the host's is in use.
func TestTransparentProxyInside(t *testing.T) {
	l := redirectLab(t, redirectAll)
	transparentProxy(t, l.host, "127.0.0.1:12345", "proxied", byNAT)
	l.mirror(t, Options{Ways: newNATTeller(t, l.host)})
	if got, err := l.fetch("203.0.113.80:443"); got != "proxied 203.0.113.80:443" || err != nil {
		t.Fatalf("before: got %q, %v", got, err)
	}
	greet(t, l.inside, "127.0.0.1:12345", "inside\n")
	if got, err := l.fetch("203.0.113.80:443"); got != "inside" || err != nil {
		t.Errorf("got %q, %v; want the proxy inside", got, err)
	}
	l.wantNoLimit(t)
}

// TestTranslationsThatDiffer changes the nat of the inside, or dials as somebody
// for whom the two differ. What the host cannot be shown to do likewise is reset
// and is a limit; never is it carried otherwise than the inside's kernel said.
func TestTranslationsThatDiffer(t *testing.T) {
	const server = "203.0.113.80:443"
	for _, c := range []struct {
		name, change string
		uid          int
		addr         string
	}{
		{"another port, where the host has a listener", "flush chain inet proxy out; add rule inet proxy out tcp dport 443 redirect to :12346", 0, server},
		{"another destination", "add rule inet proxy out tcp dport 8443 redirect to :12345", 0, "203.0.113.80:8443"},
		{"a user for whom the host makes an exception", "flush chain inet proxy out; add rule inet proxy out meta skuid 1000 tcp dport 8443 redirect to :12345", 1000, "203.0.113.80:8443"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := redirectLab(t, redirectAll)
			greet(t, l.server, ":8443", "server\n")
			transparentProxy(t, l.host, "127.0.0.1:12345", "proxied", byNAT)
			greet(t, l.host, "127.0.0.1:12346", "another service\n")
			l.mirror(t, Options{Ways: newNATTeller(t, l.host)})
			load(t, l.inside, c.change)
			if got, err := fetchFrom(l.inside, c.uid, c.addr); err == nil || got != "" {
				t.Errorf("got %q, %v; want nothing", got, err)
			}
			l.wantLimit(t, 0, way.Translation, c.addr)
		})
	}
}
