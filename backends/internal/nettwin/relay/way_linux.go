package relay

import (
	"errors"
	"net/netip"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// route is how one outer socket is made so that its packets go the way that the
// twin's kernel chose: as an ordinary socket of the host where the host goes that
// way by itself, with a mark where it has to be told.
//
// It is made for one flow by [lane.choose], and [route.release] ends it, on every
// path: the host may hold something for it.
type route struct {
	lane     *lane
	flow     way.Flow
	mark     uint32
	ttl      byte   // of the twin's packets; 0: the host's default
	mss      int    // of the twin's stream; 0: the host's
	removed  uint64 // times that something of the lane was removed, before the first packet
	mtu      int    // of the route that the host takes by itself; 0: the link's
	admitted atomic.Bool
	held     bool // the host lets in this flow and nothing about it
}

// refusal is a flow that is not carried: what is remembered of it and what the
// twin is told. It is the error of [route.control] and [route.confirm].
type refusal struct {
	limit way.Limit
	code  code
	count *atomic.Uint64
}

func (r *refusal) Error() string { return r.limit.Error() }

// choose asks the host's kernel which way an ordinary socket with the twin's
// source address would go to dst. The answer is for this flow alone, for the
// host's routes change. The source port is not part of the question: the outer
// socket will have another one.
func (l *lane) choose(proto uint8, src, dst netip.AddrPort) (*route, *refusal) {
	addr := dst.Addr().WithZone("")
	// 0.0.0.0 and :: connect to the host itself; ::ffff:127.0.0.1 is IPv4 to every
	// socket call and nothing of the kind on a wire.
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsLoopback() || addr.Is4In6() {
		return nil, l.fence(addr)
	}
	w := &route{lane: l, flow: way.Flow{
		Proto: proto, Src: netip.AddrPortFrom(src.Addr().WithZone(""), 0), Dst: netip.AddrPortFrom(addr, dst.Port()), Lane: l.way(addr),
	}}
	a, err := l.relay.host.ask(w.question())
	switch {
	case err == nil && a.typ != unix.RTN_UNICAST: // local, broadcast, multicast
		return nil, l.fence(addr)
	case err == nil && l.takes(addr, a) && !w.balanced():
		return w.near()
	// With a source that is not the host's, IPv4 has no answer at all.
	case l.relay.host.local(addr):
		return nil, l.fence(addr)
	case !l.relay.host.local(w.flow.Src.Addr()):
		return nil, l.foreign(w.flow.Src.Addr())
	}
	if r := w.lead(); r != nil {
		return nil, r
	}
	return w.near()
}

// balanced reports whether the host spreads such flows over several next hops.
// Which one a connect takes cannot be known before it: since 6.16 the kernel
// draws lots where ports count (fib_multipath_hash_policy).
func (w *route) balanced() bool {
	q := w.question()
	q.fib = true
	a, err := w.lane.relay.host.ask(q)
	w.mtu = a.mtu
	return err == nil && a.multipath
}

// lead has the lane made on the host and looks whether the kernel now goes it.
// The mark is remembered, the answer is not: when the lane was taken away in
// between (networkd removes rules it does not know), it is made again.
func (w *route) lead() *refusal {
	l := w.lane
	known := l.mark(w.flow.Lane.Six)
	var lim *way.Limit
	for _, mark := range []uint32{known.Load(), 0} {
		if mark == 0 {
			m, err := l.relay.ways.Lane(w.flow.Lane)
			if err != nil {
				return w.limited(err)
			}
			mark = m
			known.Store(m)
		}
		w.mark = mark
		if lim = w.strays(); lim == nil {
			return nil
		}
	}
	known.Store(0)
	return l.blocked(*lim)
}

// question is the flow as it stands: with its mark, and its source port once
// there is one.
func (w *route) question() question {
	q := question{proto: w.flow.Proto, src: w.flow.Src, dst: w.flow.Dst, mark: w.mark}
	if w.flow.Dst.Addr().IsLinkLocalUnicast() && w.flow.Lane.Six {
		q.oif = w.flow.Lane.Index
	}
	return q
}

// undone is strays when packets were sent already: what was removed and made again
// meanwhile counts, too.
func (w *route) undone() *way.Limit {
	if lim := w.strays(); lim != nil {
		return lim
	}
	if w.mark != 0 && w.lane.relay.host.watch.count(w.mark) != w.removed {
		return &way.Limit{Kind: way.Route, Subject: w.subject(), Reason: "the way was taken away from the host meanwhile"}
	}
	return nil
}

// strays asks the host's kernel where it sends the flow as it stands. Nil: down
// the lane.
func (w *route) strays() *way.Limit {
	lim := &way.Limit{Kind: way.Route, Subject: w.subject()}
	a, err := w.lane.relay.host.ask(w.question())
	switch {
	case err == nil && a.typ == unix.RTN_UNICAST && w.lane.takes(w.flow.Dst.Addr(), a):
		return nil
	case err == nil:
		lim.Reason = "a rule of the host's sends this flow another way"
	case w.mark != 0 && (errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)): // the fence
		lim.Kind, lim.Reason = way.Link, "the interface is down on the host, or a rule of the host's forbids this way"
	default:
		lim.Reason = "the host has no way for this flow: " + err.Error()
	}
	return lim
}

// takes reports whether an answer for dst is this lane.
func (l *lane) takes(dst netip.Addr, a answer) bool {
	itf := l.hop.itf
	if a.oif != itf.Index {
		return false
	}
	if l.hop.link {
		return a.hop == dst
	}
	return a.hop == l.hop.addr || l.hop == itf.own // the last is a link without next hops
}

// way names the lane that a flow to dst takes.
func (l *lane) way(dst netip.Addr) way.Lane {
	w := way.Lane{Index: l.hop.itf.Index, Six: dst.Is6()}
	if l.hop.addr != dst {
		w.NextHop = l.hop.addr // not valid for a whole link
	}
	return w
}

// mark is where the mark of the lane is remembered.
func (l *lane) mark(six bool) *atomic.Uint32 {
	if six {
		return &l.marks[1]
	}
	return &l.marks[0]
}

// target is the address that the outer socket is connected to. The zone is a
// number: to look a name up takes a socket that the process may not open.
func (l *lane) target(a tcpip.Address, port uint16) netip.AddrPort {
	d, _ := netip.AddrFromSlice(a.AsSlice())
	if d.Is6() && d.IsLinkLocalUnicast() {
		d = d.WithZone(strconv.Itoa(l.hop.itf.Index))
	}
	return netip.AddrPortFrom(d, port)
}

// source is the address and port that the twin's packets of a flow come from.
func source(a tcpip.Address, port uint16) netip.AddrPort {
	s, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(s, port)
}
