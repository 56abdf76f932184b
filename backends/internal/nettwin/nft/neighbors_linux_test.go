package nft

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// bounded is a node with a bound, and a link on which every address of
// 198.18.0.0/16 is a neighbour and nobody answers.
func bounded(t *testing.T, owned bool) (*netlab.Node, *Table) {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.NetNS, nstest.NFT, nstest.Tool("nft"))
	l := netlab.New()
	t.Cleanup(func() { l.Close() })
	n, err := l.Node("node")
	must(t, err)
	nobody, err := l.Node("nobody")
	must(t, err)
	must(t, l.Wire(n, "eth0", nobody, "eth0"))
	must(t, n.Address("eth0", "198.18.0.1/16"))
	table, err := Make(int(n.NS().Fd()), "own", owned)
	must(t, err)
	t.Cleanup(func() { table.Close() })
	must(t, table.Set(nil))
	must(t, table.BoundNeighbors(Links{}))
	return n, table
}

// send sends datagrams to the neighbours from one number on, and counts those that
// the kernel took.
func send(t *testing.T, n *netlab.Node, from, count int) (sent int) {
	t.Helper()
	c, err := n.ListenPacket("udp4", ":0")
	must(t, err)
	defer c.Close()
	for i := range count {
		if _, err := c.WriteTo([]byte("x"), &net.UDPAddr{IP: net.IPv4(198, 18, 1+byte((from+i)>>8), byte(from+i)), Port: 9}); err == nil {
			sent++
		}
	}
	return sent
}

// TestBoundIsRenewed has an unowned table flushed, and a part of it.
func TestBoundIsRenewed(t *testing.T) {
	n, table := bounded(t, false)
	for _, try := range []string{"flush ruleset", "flush chain inet own neighbours", "flush table inet own", "list ruleset"} {
		nft(t, n, try)
		if again, err := table.Renew(nil); again == (try == "list ruleset") || err != nil {
			t.Errorf("%s: made again: %v, %v", try, again, err)
		}
		if sent := send(t, n, 0, 2*way.MaxNeighbors); sent != way.MaxNeighbors {
			t.Errorf("%s: %d could be sent to, want %d", try, sent, way.MaxNeighbors)
		}
		if c, err := table.Refused(); c < way.MaxNeighbors || err != nil {
			t.Errorf("%s: %d were refused: %v", try, c, err)
		}
	}
	must(t, table.Close())
	if c, err := table.Refused(); err == nil {
		t.Errorf("a closed table refused %d", c)
	}
}

// TestHopInUseStays looks at how long an admitted hop has left.
func TestHopInUseStays(t *testing.T) {
	n, table := bounded(t, true)
	left := func() time.Duration {
		t.Helper()
		out, err := n.Run(t.Context(), "nft", "list", "set", "inet", "own", "neighbours4")
		must(t, err)
		_, rest, _ := strings.Cut(out, "expires ")
		d, err := time.ParseDuration(strings.Fields(rest)[0])
		must(t, err)
		return d
	}
	send(t, n, 0, 1)
	for end := time.Now().Add(5 * time.Second); left() > way.NeighborTime-200*time.Millisecond; {
		if time.Now().After(end) {
			t.Fatal("an admitted hop does not age")
		}
	}
	before := left()
	send(t, n, 0, 1)
	if after := left(); after <= before {
		t.Errorf("%v are left after a packet, %v before", after, before)
	}
	if c, err := table.Refused(); c != 0 || err != nil {
		t.Errorf("%d were refused: %v", c, err)
	}
}
