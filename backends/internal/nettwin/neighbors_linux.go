package nettwin

import (
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// maxStatic bounds the static neighbours of a link, for they are told to the relay
// in one message. Those above are asked for, and answered all the same.
const maxStatic = 256

// addNeighbors mirrors static neighbours. A frame tells its next hop by its MAC,
// and two next hops may share a real one, so each gets a MAC of the relay's kind.
func (r *replica) addNeighbors() error {
	r.static = map[int][]relay.NextHop{}
	serial, over := uint32(0), 0
	for _, m := range r.host.neighbors {
		if len(r.static[r.toTwin[index(m[4:])]]) >= maxStatic {
			over++
			continue
		}
		serial++
		mac := relay.StaticMAC(serial)
		b, ok := rtnl.Neighbor(m, r.toTwin, mac)
		if !ok {
			continue
		}
		if err := r.conn.Do(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, b); err != nil {
			r.note("neighbour %s is not in the twin: %v", rtnl.NeighborText(m, r.host.name), err)
			continue
		}
		if addr, ok := rtnl.NeighborAddr(m); ok {
			i := index(b[4:])
			r.static[i] = append(r.static[i], relay.NextHop{Addr: addr, MAC: mac})
		}
	}
	if over > 0 {
		r.note("%d static neighbours are not in the twin, which has %d a link", over, maxStatic)
	}
	return nil
}
