package nettwin

import (
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// addNeighbors mirrors static neighbours. A frame tells its next hop by its MAC,
// and two next hops may share a real one, so each gets a MAC of the relay's kind.
func (r *replica) addNeighbors() error {
	r.static = map[int][]relay.NextHop{}
	serial := uint32(0)
	for _, m := range r.host.neighbors {
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
	return nil
}
