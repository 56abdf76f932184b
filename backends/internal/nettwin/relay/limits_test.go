package relay

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

func limit(n int) way.Limit {
	return way.Limit{Kind: way.Route, Subject: fmt.Sprintf("eth0 via 192.0.2.%d", n), Reason: "a test"}
}

func TestLimitsSince(t *testing.T) {
	s := newLimits(1000)
	if ls, next := s.since(0); len(ls) != 0 || next != 1000 {
		t.Errorf("nothing met: %v, %d", ls, next)
	}
	for _, n := range []int{1, 2, 1, 1} {
		s.add(limit(n))
	}
	ls, mark := s.since(0)
	if want := []way.Limit{limit(2), limit(1)}; !slices.Equal(ls, want) {
		t.Errorf("got %v, want %v, by the last time", ls, want)
	}
	if ls, _ := s.since(mark); len(ls) != 0 {
		t.Errorf("since the mark: %v", ls)
	}
	s.add(limit(2)) // known, and met again
	if ls, _ := s.since(mark); !slices.Equal(ls, []way.Limit{limit(2)}) {
		t.Errorf("since the mark: %v", ls)
	}
}

// TestLimitsAreBounded meets more than are kept, in texts that are longer than any.
func TestLimitsAreBounded(t *testing.T) {
	s := newLimits(0)
	s.add(limit(0))
	_, mark := s.since(0)
	long := strings.Repeat("x\x1b[2J", 500)
	for n := range 3 * maxLimits {
		s.add(way.Limit{Kind: way.Route, Subject: fmt.Sprint(n, long), Reason: long})
	}
	ls, next := s.since(mark)
	if len(ls) != maxLimits+1 || ls[maxLimits].Kind != way.Load {
		t.Fatalf("%d limits, want %d and one that says so", len(ls), maxLimits)
	}
	for _, l := range ls {
		if strings.ContainsRune(l.Subject+l.Reason, 0x1b) {
			t.Fatalf("%q would reach a terminal", l)
		}
	}
	if b, err := json.Marshal(Answer{Limits: ls, Next: next}); err != nil || len(b) > maxMessage {
		t.Errorf("an answer of %d bytes, %v; want at most %d", len(b), err, maxMessage)
	}
	if ls, _ := s.since(next); len(ls) != 0 {
		t.Errorf("since the last: %v", ls)
	}
}
