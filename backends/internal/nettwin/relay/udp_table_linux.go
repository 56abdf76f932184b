package relay

import (
	"fmt"
	"sync"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// udpIdle ends a flow to a service on the host's loopback. It costs no more than the
// others; nobody keeps one open without a word.
const udpIdle = 60 * time.Second

// udpTable is the datagram flows of one twin. A full one makes room as conntrack
// does: for a new flow, one that nobody answered goes, or the one that was idle
// longest.
type udpTable struct {
	mu    sync.Mutex
	flows map[*udpFlow]struct{}
}

func (t *udpTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.flows)
}

func (t *udpTable) remove(f *udpFlow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.flows, f)
}

// add takes a flow in.
func (t *udpTable) add(f *udpFlow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flows == nil {
		t.flows = map[*udpFlow]struct{}{}
	}
	t.flows[f] = struct{}{}
}

// room reports whether another flow may begin, after making it.
func (t *udpTable) room() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.flows) < maxUDPFlows {
		return true
	}
	var old *udpFlow
	for f := range t.flows {
		if f.idle() >= settled && (old == nil || f.before(old)) {
			old = f
		}
	}
	if old == nil {
		return false
	}
	delete(t.flows, old)
	old.stop()
	return true
}

// settled is how long a flow is left alone when there are too many: the time in
// which an answer comes.
const settled = 250 * time.Millisecond

// before says which of two flows goes first.
func (f *udpFlow) before(g *udpFlow) bool {
	if a, b := f.answered.Load(), g.answered.Load(); a != b {
		return b
	}
	return f.moved.Load() < g.moved.Load()
}

// crowded is the limit that is met when there is no room.
func crowded() *way.Limit {
	return &way.Limit{Kind: way.Load, Subject: "datagram flows", Reason: fmt.Sprintf("more than %d at once", maxUDPFlows)}
}
