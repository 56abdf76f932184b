package relay

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Bounds of what waits for its missing pieces. Pieces come from a kernel's own
// fragmentation, so a datagram that is not complete soon never will be.
const (
	maxPartial = 16
	maxPieces  = 128
	pieceTime  = 5 * time.Second
	maxPayload = 65535 - 20
)

// pieces puts fragmented ICMP messages together. TCP and UDP are put together by
// the stack, which would answer an echo request itself.
type pieces struct {
	mu      sync.Mutex
	partial map[pieceKey]*partial
}

type pieceKey struct {
	src, dst netip.Addr
	id       uint32
}

// partial is a datagram of which something is missing.
type partial struct {
	first datagram // of the piece at 0
	begun time.Time
	parts []span // in order, not overlapping
	total int    // 0 until the last one came
}

type span struct {
	at int
	b  []byte
}

// add takes a fragment and returns the datagram when it was the last one missing.
// A datagram whose pieces overlap is given up, as Linux does (since 4.19, and
// RFC 5722 asks for it).
func (s *pieces) add(d datagram, p piece) (datagram, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := pieceKey{d.src, d.dst, p.id}
	w := s.partial[k]
	if w != nil && time.Since(w.begun) > pieceTime {
		delete(s.partial, k)
		w = nil
	}
	if w == nil {
		w = s.begin(k)
	}
	if !w.fit(d, p) {
		delete(s.partial, k)
		return datagram{}, false
	}
	b, ok := w.whole()
	if !ok {
		return datagram{}, false
	}
	delete(s.partial, k)
	w.first.payload = b
	return w.first, true
}

// begin makes room for a new datagram, at the cost of the oldest.
func (s *pieces) begin(k pieceKey) *partial {
	if s.partial == nil {
		s.partial = map[pieceKey]*partial{}
	}
	if len(s.partial) >= maxPartial {
		var old pieceKey
		begun := time.Now().Add(time.Hour)
		for k, w := range s.partial {
			if w.begun.Before(begun) {
				old, begun = k, w.begun
			}
		}
		delete(s.partial, old)
	}
	w := &partial{begun: time.Now()}
	s.partial[k] = w
	return w
}

// fit puts a piece in its place. False: it does not fit those that are there.
func (w *partial) fit(d datagram, p piece) bool {
	end := p.at + len(d.payload)
	switch {
	case len(d.payload) == 0, end > maxPayload, p.more && len(d.payload)%8 != 0, len(w.parts) >= maxPieces:
		return false
	case w.total != 0 && (end > w.total || !p.more):
		return false
	}
	if !p.more {
		w.total = end
	}
	if p.at == 0 {
		w.first = d
		w.first.head = slices.Clone(d.head)
	}
	i, _ := slices.BinarySearchFunc(w.parts, p.at, func(s span, at int) int { return s.at - at })
	if i > 0 && w.parts[i-1].at+len(w.parts[i-1].b) > p.at || i < len(w.parts) && w.parts[i].at < end {
		return false
	}
	w.parts = slices.Insert(w.parts, i, span{p.at, slices.Clone(d.payload)})
	last := w.parts[len(w.parts)-1]
	return w.total == 0 || last.at+len(last.b) <= w.total
}

// whole joins the pieces when none is missing. They do not overlap, so it is
// enough that their sizes add up.
func (w *partial) whole() ([]byte, bool) {
	n := 0
	for _, s := range w.parts {
		n += len(s.b)
	}
	if w.total == 0 || n != w.total {
		return nil, false
	}
	b := make([]byte, 0, n)
	for _, s := range w.parts {
		b = append(b, s.b...)
	}
	return b, true
}
