package relay

import (
	"slices"
	"strings"
	"sync"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// maxLimits bounds the different limits that are remembered: all of them fit
// into one answer.
const maxLimits = 64

// Longest texts of a limit, for subjects are made of what frames say.
const (
	maxKind    = 16
	maxSubject = 96
	maxReason  = 224
)

// limits remembers what could not be done as on the host, each thing once, with
// the number of the last time: a scan meets the same limit ten thousand times,
// and must not push out the one that explains a failed check.
type limits struct {
	mu   sync.Mutex
	seq  uint64
	last map[way.Limit]uint64
	lost uint64 // number of the newest one that was forgotten
}

// newLimits begins at a number later than any of an earlier relay's, so that a
// caller's mark of before a restart stays a mark of the past.
func newLimits(start uint64) *limits {
	return &limits{seq: start, lost: 0, last: map[way.Limit]uint64{}}
}

func (s *limits) add(l way.Limit) {
	l = tidy(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	if _, known := s.last[l]; !known && len(s.last) >= maxLimits {
		var old way.Limit
		at := s.seq
		for k, seq := range s.last {
			if seq < at {
				old, at = k, seq
			}
		}
		delete(s.last, old)
		s.lost = max(s.lost, at)
	}
	s.last[l] = s.seq
}

// since returns the limits met after a number, oldest first, and the number to
// ask with the next time.
func (s *limits) since(n uint64) ([]way.Limit, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []way.Limit
	for l, seq := range s.last {
		if seq > n {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b way.Limit) int {
		if s.last[a] < s.last[b] {
			return -1
		}
		return 1
	})
	if s.lost > n {
		out = append(out, way.Limit{Kind: way.Load, Subject: "limits", Reason: "more different ones were met than are remembered"})
	}
	return out, s.seq
}

// tidy makes a limit that is safe to keep, send and print.
func tidy(l way.Limit) way.Limit {
	cut := func(s string, n int) string {
		s = change.Escape(s[:min(len(s), n)])
		return strings.ToValidUTF8(s[:min(len(s), n)], "")
	}
	return way.Limit{Kind: way.Kind(cut(string(l.Kind), maxKind)), Subject: cut(l.Subject, maxSubject), Reason: cut(l.Reason, maxReason)}
}
