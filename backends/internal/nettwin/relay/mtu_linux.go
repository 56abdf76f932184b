package relay

import (
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// What leaves the twin is sent by the host's links, with their MTU. Where the inside
// made its own smaller, outer streams are made so, too. A larger one cannot be had
// without changing the host: that it works with the host's says nothing.

// Smallest and largest value of TCP_MAXSEG.
const (
	leastMaxSeg = 88
	mostMaxSeg  = 32767
)

// mssOf is the largest segment that the sender of a SYN takes. Where the options end
// is what the frame says; the stack, which would not take such a segment, looks later.
func mssOf(syn header.TCP) int {
	if n := int(syn.DataOffset()); n < header.TCPMinimumSize || n > len(syn) {
		return header.TCPDefaultMSS
	}
	return int(header.ParseSynOptions(syn.Options(), false).MSS)
}

// segment gives a stream the largest segments that the twin's first one announces.
// A refusal: the host would not send such large ones, by its route or by its link.
func (w *route) segment(mss int) *refusal {
	head, most := header.IPv4MinimumSize+header.TCPMinimumSize, int(w.lane.hop.itf.MTU)
	if w.flow.Lane.Six {
		head = header.IPv6MinimumSize + header.TCPMinimumSize
	}
	if w.mark == 0 && w.mtu != 0 { // the route of a lane is ours and has none
		most = w.mtu
	}
	if mss+head > most {
		return w.lane.blocked(wide(w.subject(), mss+head, most))
	}
	if mss <= mostMaxSeg {
		w.mss = max(mss, leastMaxSeg)
	}
	return nil
}

// wide is a limit: a packet of n bytes went where the host's are at most so long.
func wide(subject string, n, most int) way.Limit {
	return way.Limit{Kind: way.Link, Subject: subject, Reason: fmt.Sprintf("the twin sends packets of %d bytes, and the MTU of the host is %d", n, most)}
}

// limitSegments is part of preparing a socket.
func (w *route) limitSegments(fd int) error {
	if w.mss == 0 {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_MAXSEG, w.mss); err != nil {
		return fmt.Errorf("set largest segment: %w", err)
	}
	return nil
}

// tooWide reports a packet that is longer than any of the host's on its link, and
// remembers it. Streams are not cut yet here, and told apart by [route.segment].
func (r *Relay) tooWide(itf *iface, proto byte, n int) bool {
	if n <= int(itf.MTU) || proto == unix.IPPROTO_TCP {
		return false
	}
	r.counts.dropped.Add(1)
	if !r.cut {
		lim := wide(itf.Name, n, int(itf.MTU))
		r.limit(&lim)
	}
	return true
}
