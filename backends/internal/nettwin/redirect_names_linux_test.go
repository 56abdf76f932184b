package nettwin

import (
	"net/netip"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestRedirectedNames has the host's nat send every question to a name server to
// a port of the proxy's, whatever server was asked.
func TestRedirectedNames(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	load(t, l.host, "table inet dns { chain o { type nat hook output priority -100; meta skuid != 990 udp dport 53 redirect to :1053; }; };")
	says(t, l.host, "127.0.0.1:1053", "proxy")
	says(t, l.host, "[::1]:1053", "proxy")
	says(t, l.server, ":53", "server")
	l.mirror(t, Options{Ways: newNATTeller(t, l.host)})
	for _, addr := range []string{"8.8.8.8:53", "203.0.113.80:53", "[2001:db8:80::80]:53"} {
		if got, err := l.datagram(addr, "q"); got != "proxy q" || err != nil {
			t.Errorf("%s: got %q, %v; want the proxy's answer", addr, got, err)
		}
	}
	l.wantNoLimit(t)
	// One more port, which the host does not redirect.
	load(t, l.inside, "add rule inet dns o udp dport 5353 redirect to :1053")
	if got, err := l.datagramWithin("203.0.113.80:5353", "q", time.Second); err == nil {
		t.Errorf("a redirection that the host lacks: got %q", got)
	}
	l.wantLimit(t, 0, way.Translation, "203.0.113.80:5353")
}

// TestRedirectedResolver is a candidate: names asked of the host's stub are to go
// to a server inside. The host's stub must not answer for one that is not there.
func TestRedirectedResolver(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	says(t, l.host, "127.0.0.53:53", "stub")
	says(t, l.host, "127.0.0.1:5399", "another service")
	l.mirror(t, Options{Resolvers: []netip.Addr{}, Ways: newNATTeller(t, l.host)})
	if got, err := l.datagram("127.0.0.53:53", "q"); got != "stub q" || err != nil {
		t.Fatalf("before: got %q, %v", got, err)
	}
	load(t, l.inside, "table ip dns { chain o { type nat hook output priority -100; udp dport 53 redirect to :5354; }; };")
	if got, err := l.datagramWithin("127.0.0.53:53", "q", time.Second); err == nil {
		t.Errorf("nobody listens where it is redirected to: got %q", got)
	}
	l.wantNoLimit(t)
	says(t, l.inside, "127.0.0.1:5354", "inside")
	if got, err := l.datagram("127.0.0.53:53", "q"); got != "inside q" || err != nil {
		t.Errorf("got %q, %v; want the one inside", got, err)
	}
	load(t, l.inside, "flush ruleset; table ip dns { chain o { type nat hook output priority -100; udp dport 53 redirect to :5399; }; };")
	if got, err := l.datagramWithin("127.0.0.53:53", "q", time.Second); err == nil {
		t.Errorf("redirected to another service of the host's: got %q", got)
	}
	l.wantLimit(t, 0, way.Translation, "127.0.0.53:53")
}
