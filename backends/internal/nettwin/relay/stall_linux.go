package relay

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// stalls are the streams that the host lets in past its reverse path filter by
// their ports. An ICMP error has no ports: where a router beyond the first says that
// a packet is too long for the way, the filter drops that, and a stream that began
// well stands still. On a host that goes this way by itself it would not.
type stalls struct {
	mu   sync.Mutex
	open map[*route]int // their sockets
}

// stalledAfter is how often the kernel has sent the same again when a stream
// counts as standing still: after 0.6 s at the least (RFC 6298, with the kernel's
// smallest time-out of 200 ms).
const stalledAfter = 2

func (s *stalls) watch(w *route, fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*route]int{}
	}
	s.open[w] = fd
}

// over looks at a stream for the last time, before its socket is closed.
func (s *stalls) over(w *route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fd, ok := s.open[w]; ok {
		w.stalled(fd)
		delete(s.open, w)
	}
}

// look notes the limits of those that stand still now.
func (s *stalls) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w, fd := range s.open {
		w.stalled(fd)
	}
}

func (w *route) stalled(fd int) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
	if err != nil || info.Unacked == 0 || info.Retransmits < stalledAfter {
		return
	}
	w.lane.relay.limit(&way.Limit{
		Kind: way.ReversePath, Subject: w.subject(),
		Reason: "what was sent is not acknowledged, and that a packet is too long for this way could not be heard: the host's reverse path filter lets in the stream alone",
	})
}
