package conntrack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// TestBothWays redirects streams and datagrams of both families, and asks about
// each flow from both ends.
func TestBothWays(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.NetNS, nstest.NFT, nstest.Tool("nft"))
	l := netlab.New()
	t.Cleanup(func() { l.Close() })
	n, err := l.Node("node")
	must(t, err)
	_, err = n.Run(t.Context(), "nft", "table inet n { chain o { type nat hook output priority -100; "+
		"ip daddr 127.0.0.9 meta l4proto { tcp, udp } redirect to :1000; ip6 daddr ::1 tcp dport 9 redirect to :1000; ip6 daddr ::1 udp dport 9 redirect to :1000; }; }")
	must(t, err)
	for _, network := range []string{"tcp4", "tcp6"} {
		ln, err := n.Listen(network, ":1000")
		must(t, err)
		defer ln.Close()
	}
	c, err := Dial(int(n.NS().Fd()))
	must(t, err)
	defer c.Close()
	for _, tc := range []struct {
		network string
		proto   uint8
		to, at  string
	}{
		{"tcp", unix.IPPROTO_TCP, "127.0.0.9:9", "127.0.0.1:1000"},
		{"udp", unix.IPPROTO_UDP, "127.0.0.9:9", "127.0.0.1:1000"},
		{"tcp", unix.IPPROTO_TCP, "[::1]:9", "[::1]:1000"},
		{"udp", unix.IPPROTO_UDP, "[::1]:9", "[::1]:1000"},
		{"tcp", unix.IPPROTO_TCP, "127.0.0.1:1000", "127.0.0.1:1000"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		conn, err := n.Dial(ctx, tc.network, tc.to)
		must(t, err)
		defer conn.Close()
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Errorf("%s %s: %v", tc.network, tc.to, err)
		}
		client, to, at := clientOf(conn), netip.MustParseAddrPort(tc.to), netip.MustParseAddrPort(tc.at)
		if from, got, err := c.Translated(tc.proto, client, to); got != at || from != client || err != nil {
			t.Errorf("%s to %s went from %v to %v, %v; want %v to %v", tc.network, to, from, got, err, client, at)
		}
		if got, err := c.Original(tc.proto, client, at); got != to || err != nil {
			t.Errorf("%s at %s was sent to %v, %v; want %v", tc.network, at, got, err, to)
		}
	}
	nobody := netip.MustParseAddrPort("127.0.0.1:7")
	if _, err := c.Original(unix.IPPROTO_TCP, nobody, nobody); !errors.Is(err, ErrUntracked) {
		t.Errorf("a flow that is not: %v, want %v", err, ErrUntracked)
	}
}

// clientOf is the near end of a connection.
func clientOf(c net.Conn) netip.AddrPort {
	switch a := c.LocalAddr().(type) {
	case *net.TCPAddr:
		return a.AddrPort()
	case *net.UDPAddr:
		return a.AddrPort()
	}
	return netip.AddrPort{}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
