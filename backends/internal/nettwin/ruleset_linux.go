package nettwin

import (
	"fmt"
	"strings"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/xtables"
)

// loadRuleset gives the twin the host's firewall, so that a change of it acts on
// the twin's own traffic. A host whose ruleset cannot be read or loaded has a
// twin without one, and the notes say so.
func (t *Twin) loadRuleset(r *replica) (notes []string) {
	raw, err := nft.Read(int(t.host.Fd()))
	if err != nil {
		return []string{fmt.Sprintf("nftables ruleset is not in the twin: %v", err)}
	}
	if raw.Remove("inet " + tableName) {
		notes = append(notes, fmt.Sprintf("nftables table inet %s is not in the twin: the twin has one of that name itself", tableName))
	}
	more, err := raw.Load(int(t.ns.Fd()), r.renumbered())
	if err != nil {
		more = []string{fmt.Sprintf("nftables ruleset is not in the twin: %v", err)}
	}
	notes = append(notes, more...)
	seen := raw.Facts()
	tables, err := xtables.Read(int(t.host.Fd()))
	if err == nil {
		xtables.Learn(tables, seen)
		more, err = xtables.Load(int(t.ns.Fd()), tables)
		notes = append(notes, more...)
	}
	if err != nil {
		notes = append(notes, fmt.Sprintf("tables of iptables-legacy are not in the twin: %v", err))
	}
	if len(seen.Owners) > 0 {
		notes = append(notes, fmt.Sprintf("rules that ask whose a packet is (%s) know inside who sends, but the host's take what leaves the twin for root's",
			strings.Join(seen.Owners, ", ")))
	}
	if len(seen.Queues) > 0 {
		notes = append(notes, fmt.Sprintf("packets that rules hand to a program (%s) are dropped in the twin, which has no such program", strings.Join(seen.Queues, ", ")))
	}
	return notes
}

// Firewall says what the packet filters of the namespace ns, new and legacy, tell
// about how a twin of it must behave.
func Firewall(ns int) (*nft.Seen, error) {
	seen, err := nft.Facts(ns)
	if err != nil {
		return nil, err
	}
	tables, err := xtables.Read(ns)
	if err != nil {
		return nil, err
	}
	xtables.Learn(tables, seen)
	return seen, nil
}

// renumbered maps the numbers of the host's links to those that are others in
// the twin.
func (r *replica) renumbered() map[int]int {
	out := map[int]int{}
	for host, twin := range r.toTwin {
		if host != twin {
			out[host] = twin
		}
	}
	return out
}
