package relay

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// nearTime is less than [way.NeighborTime]: the twin's kernel counts a next hop
// from the packet that made it ask, which comes here after the answer.
const nearTime = way.NeighborTime - 5*time.Second

// near bounds the destinations on links themselves that flows are begun to, for
// the host's kernel makes a neighbour of each. The twin's kernel bounds what its
// sockets send; a packet socket inside asks for and sends to whom it likes.
type near struct {
	mu   sync.Mutex
	used [2]map[hopKey]time.Time // when a flow last began, by "is IPv6"
}

// near refuses a destination on the link that would be one too many.
func (w *route) near() (*route, *refusal) {
	h := w.lane.hop
	if h.link && !w.lane.relay.hops.near.admit(h.itf, w.flow.Dst.Addr(), time.Now()) {
		return nil, w.lane.blocked(way.Crowded)
	}
	return w, nil
}

// admit reports whether a flow may begin.
func (n *near) admit(itf *iface, addr netip.Addr, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	family := &n.used[0]
	if addr.Is6() {
		family = &n.used[1]
	}
	if *family == nil {
		*family = map[hopKey]time.Time{}
	}
	k := hopKey{itf, addr}
	if _, known := (*family)[k]; !known && len(*family) >= way.MaxNeighbors {
		maps.DeleteFunc(*family, func(_ hopKey, last time.Time) bool { return now.Sub(last) >= nearTime })
		if len(*family) >= way.MaxNeighbors {
			return false
		}
	}
	(*family)[k] = now
	return true
}
