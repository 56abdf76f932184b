package nettwin

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// boundNeighbors keeps a scan inside from filling the kernel's neighbour tables,
// which the host shares: with 1024 entries of anybody's the host learns no
// neighbour, not even its gateway ("neighbor table overflow"), and no namespace
// has a limit of its own.
//
// What it cannot bound are entries that root inside adds by hand (NUD_REACHABLE
// by netlink) and those of namespaces that root inside makes.
func (t *Twin) boundNeighbors(r *replica) {
	err := error(unix.EOPNOTSUPP)
	if t.loop != nil {
		t.loop.mu.Lock()
		err = t.loop.table.BoundNeighbors(r.unasked())
		t.loop.mu.Unlock()
	}
	if err != nil {
		t.notes = append(t.notes, fmt.Sprintf("a scan inside can fill the host's neighbour table: %v", err))
	}
}

// unasked are the twin's links whose next hops are not counted.
func (r *replica) unasked() nft.Links {
	var out nft.Links
	six := map[int]bool{}
	for _, m := range r.host.routes {
		for _, g := range rtnl.Gateways(m) {
			if m[0] == unix.AF_INET && g.Addr.Is6() {
				six[r.toTwin[g.Index]] = true
			}
		}
	}
	for _, p := range r.ports {
		switch {
		case mute(p.host):
			out.Mute = append(out.Mute, p.index)
		case six[p.index]:
			out.Six = append(out.Six, p.index)
		}
	}
	return out
}

// meetNeighbors tells the relay, which numbers all limits, of packets dropped
// since it was last told.
func (t *Twin) meetNeighbors() error {
	if t.loop == nil {
		return nil
	}
	t.loop.mu.Lock()
	n, err := t.loop.table.Refused()
	t.loop.mu.Unlock()
	if err != nil || n == t.refused {
		return err
	}
	if n > 0 { // else the table was made again
		if _, err := t.relay.Do(relay.Request{Met: &way.Crowded}, nil); err != nil {
			return fmt.Errorf("tell relay of neighbours: %w", err)
		}
	}
	t.refused = n
	return nil
}
