package linuxns

import (
	"slices"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
)

// laneNumbers names what of the host has marks, tables, a place among the rules or
// a protocol number that lanes would have. They evade it; only a rule before which
// none can be made leaves no way round.
func laneNumbers(h *hostNet) (backends.Finding, error) {
	conflicts := h.conflicts
	if seen, err := h.firewall(); err == nil { // why not is said where it is asked about
		marks := make([]lanes.Mark, len(seen.Marks))
		for i, m := range seen.Marks {
			marks[i] = lanes.Mark(m)
		}
		conflicts = slices.Concat(conflicts, lanes.MarkConflicts(marks))
	}
	var evaded, barred []string
	for _, c := range conflicts {
		line := c.Subject + ": " + c.Reason
		switch {
		case c.Kind == lanes.ConflictReversePath:
		case c.Bars:
			barred = append(barred, line)
		default:
			evaded = append(evaded, line)
		}
	}
	switch {
	case barred != nil:
		return lesser("give that rule a preference above 0: ip rule delete it and add it again",
			"%s; ways that the host does not use itself are Unverifiable", listed(barred))
	case evaded != nil:
		return fine("%s", listed(evaded))
	}
	return fine("marks, tables and preferences are free")
}

// reversePathFilter names the interfaces whose filter is strict: the kernel drops
// what comes in by another interface than the answer would leave by. It is no limit.
// The answers to a flow that a twin sends by another interface than the host would
// are let in by a rule of that flow's own, and nothing else is.
func reversePathFilter(h *hostNet) (backends.Finding, error) {
	var strict []string
	for _, c := range h.conflicts {
		if c.Kind == lanes.ConflictReversePath {
			strict = append(strict, c.Subject)
		}
	}
	if strict == nil {
		return fine("not strict on any interface")
	}
	return fine("strict on %s: answers by another interface are let in flow by flow", listed(strict))
}
