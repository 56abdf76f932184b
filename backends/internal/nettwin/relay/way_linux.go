package relay

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

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
	admitted atomic.Bool
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
		return w, nil
	// With a source that is not the host's, IPv4 has no answer at all.
	case l.relay.host.local(addr):
		return nil, l.fence(addr)
	case !l.relay.host.local(w.flow.Src.Addr()):
		return nil, l.foreign(w.flow.Src.Addr())
	}
	if r := w.lead(); r != nil {
		return nil, r
	}
	return w, nil
}

// balanced reports whether the host spreads such flows over several next hops.
// Which one a connect takes cannot be known before it: since 6.16 the kernel
// draws lots where ports count (fib_multipath_hash_policy).
func (w *route) balanced() bool {
	q := w.question()
	q.fib = true
	a, err := w.lane.relay.host.ask(q)
	return err == nil && a.multipath
}

// lead has the lane made on the host and looks whether the kernel now goes it.
// The mark is remembered, the answer is not: when the lane was taken away in
// between (networkd removes rules it does not know), it is made again.
func (w *route) lead() *refusal {
	l := w.lane
	known := l.mark(w.flow.Lane.Six)
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
		if w.goes() {
			return nil
		}
	}
	known.Store(0)
	return l.blocked(way.Limit{Kind: way.Route, Subject: w.subject(), Reason: "the host's rules come before the one that was made for this way"})
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

// goes reports whether the host's kernel sends the flow as it stands down the
// lane.
func (w *route) goes() bool {
	a, err := w.lane.relay.host.ask(w.question())
	return err == nil && a.typ == unix.RTN_UNICAST && w.lane.takes(w.flow.Dst.Addr(), a)
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

// control is a [net.Dialer] control function; it does for any other socket too.
// It binds the socket, so the dialer must have no LocalAddr.
func (w *route) control(_, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) { err = w.prepare(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// prepare makes a new socket one of the flow. The dialer calls it again with
// another socket when it tries again.
func (w *route) prepare(fd int) error {
	w.release()
	w.flow.Src = netip.AddrPortFrom(w.flow.Src.Addr(), 0)
	switch {
	case w.mark != 0:
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(w.mark)); err != nil {
			return w.unmarked(err)
		}
	case w.flow.Proto == unix.IPPROTO_TCP:
		// The port is chosen with the connect, when it need be free only for that
		// destination: 28 000 ports are soon used up by closed connections.
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil && err != unix.ENOPROTOOPT {
			return fmt.Errorf("bind without port: %w", err)
		}
	}
	if err := w.bind(fd); err != nil {
		return err
	}
	if w.mark == 0 {
		return nil
	}
	return w.admit(fd)
}

// bind gives the socket the twin's source address.
func (w *route) bind(fd int) error {
	src := w.flow.Src.Addr()
	var sa unix.Sockaddr
	if src.Is4() {
		sa = &unix.SockaddrInet4{Addr: src.As4()}
	} else {
		six := &unix.SockaddrInet6{Addr: src.As16()}
		if src.IsLinkLocalUnicast() {
			six.ZoneId = uint32(w.flow.Lane.Index)
		}
		sa = six
	}
	switch err := unix.Bind(fd, sa); err {
	case nil:
		return nil
	case unix.EADDRNOTAVAIL:
		return w.lane.foreign(src)
	case unix.EADDRINUSE:
		return w.lane.blocked(way.Limit{Kind: way.Load, Subject: src.String(), Reason: "the host has no free port left on this address"})
	default:
		return fmt.Errorf("bind %s: %w", src, err)
	}
}

// admit lets the answers in, now that the port is known, and looks for the last
// time where the kernel would send the flow: a rule of the host may name ports.
func (w *route) admit(fd int) error {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("read bound address: %w", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		w.flow.Src = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		w.flow.Src = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	if err := w.lane.relay.ways.Admit(w.flow, fd); err != nil {
		return w.limited(err)
	}
	w.admitted.Store(true)
	if !w.goes() {
		w.release()
		return w.lane.blocked(way.Limit{Kind: way.Route, Subject: w.subject(), Reason: "the host sends this flow another way"})
	}
	return nil
}

// confirm is called when the socket is connected and, for datagrams, the first
// one was sent. It holds what the host did against what the twin did: the way,
// now that the port is known, and the host's own address translation.
func (w *route) confirm(local netip.AddrPort) *refusal {
	if p := local.Port(); p != 0 && w.mark == 0 {
		w.flow.Src = netip.AddrPortFrom(w.flow.Src.Addr(), p)
		if !w.goes() {
			return w.lane.blocked(way.Limit{Kind: way.Route, Subject: w.subject(), Reason: "the host sends this flow another way"})
		}
	}
	r := w.lane.relay
	if lim := r.divertedByHost(w.flow); lim != nil {
		return w.lane.blocked(*lim)
	}
	if !r.translates.Load() {
		return nil
	}
	to, err := r.ways.Translated(w.flow)
	if err != nil {
		return w.limited(err)
	}
	// The twin's own translation is done: what arrives here is its outcome.
	if to.IsValid() && to != w.flow.Dst {
		return w.lane.blocked(way.Limit{Kind: way.Translation, Subject: w.flow.Dst.String(), Reason: "the host's own nat sends it to " + to.String() + ", the twin's does not"})
	}
	return nil
}

// release gives back what the host holds for the flow.
func (w *route) release() {
	if w.admitted.Swap(false) {
		w.lane.relay.ways.Release(w.flow)
	}
}

// linger bounds how long the answers to a stream are let in after its end.
const linger = time.Minute

// toReset reports whether the close of a socket resets the connection.
func toReset(fd int) bool {
	l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
	return err == nil && l.Onoff != 0 && l.Linger == 0
}

// hold keeps the socket of a flow whose answers are let in: the kernel still sends
// what is in it after it was closed, and waits for the last acknowledgement. -1:
// nothing needs to be let in.
func (w *route) hold(c *net.TCPConn) int {
	fd := -1
	if rc, err := c.SyscallConn(); err == nil && w.admitted.Load() {
		_ = rc.Control(func(s uintptr) { // a socket that is closed already is not held
			fd, _ = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0)
		})
	}
	return fd
}

// retire is release for a stream that ended; fd is what hold returned. A reset is
// sent, and an end in order is over, when the kernel says so.
func (w *route) retire(fd int) {
	if fd >= 0 {
		pause := 5 * time.Millisecond
		for end := time.Now().Add(linger); time.Now().Before(end); pause = min(2*pause, time.Second) {
			info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
			if err != nil || info.State == unix.BPF_TCP_CLOSE || toReset(fd) {
				break
			}
			time.Sleep(pause)
		}
		unix.Close(fd)
	}
	w.release()
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
