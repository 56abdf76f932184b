package relay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

func TestNear(t *testing.T) {
	var n near
	now := time.Now()
	itf, other := &iface{}, &iface{}
	four, six := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8::1")
	for range way.MaxNeighbors {
		if !n.admit(itf, four, now) || !n.admit(itf, six, now) {
			t.Fatalf("%s or %s is one too many", four, six)
		}
		four, six = four.Next(), six.Next()
		now = now.Add(time.Millisecond)
	}
	first := netip.MustParseAddr("198.18.0.1")
	for _, c := range []struct {
		name string
		itf  *iface
		addr netip.Addr
		want bool
	}{
		{"another", itf, four, false},
		{"another of IPv6", itf, six, false},
		{"a known one on another link", other, first, false},
		{"a known one", itf, first, true},
	} {
		if got := n.admit(c.itf, c.addr, now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	// All but the first, to which another flow began, are old by now.
	now = now.Add(nearTime - time.Millisecond)
	admitted := 0
	for range 2 * way.MaxNeighbors {
		if four = four.Next(); n.admit(itf, four, now) {
			admitted++
		}
	}
	if admitted != way.MaxNeighbors-1 || !n.admit(itf, first, now) {
		t.Errorf("%d more were admitted, want %d beside the one in use", admitted, way.MaxNeighbors-1)
	}
}
