package relay

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

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
	late := w.mark == 0 && w.flow.Proto == unix.IPPROTO_TCP
	if late {
		// The port is chosen with the connect, when it need be free only for that
		// destination: 28 000 ports are soon used up by closed connections.
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil && err != unix.ENOPROTOOPT {
			return fmt.Errorf("bind without port: %w", err)
		}
	}
	if err := errors.Join(w.live(fd), w.limitSegments(fd)); err != nil {
		return err
	}
	if err := w.bind(fd); err != nil || late {
		return err
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("read bound address: %w", err)
	}
	if r := w.settle(addrPort(sa)); r != nil {
		return r
	}
	if w.mark == 0 {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(w.mark)); err != nil {
		return w.unmarked(err)
	}
	w.removed = w.lane.relay.host.watch.count(w.mark) // before admit looks for the last time
	return w.admit(fd)
}

// live gives the socket's packets the time to live that they have in the twin,
// where a setting or a route may have made it too short for the way.
func (w *route) live(fd int) error {
	if w.ttl == 0 {
		return nil
	}
	level, option := unix.SOL_IP, unix.IP_TTL
	if w.flow.Lane.Six {
		level, option = unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS
	}
	if err := unix.SetsockoptInt(fd, level, option, int(w.ttl)); err != nil {
		return fmt.Errorf("set time to live: %w", err)
	}
	return nil
}

// settle looks where the kernel sends the flow now that its source port is known,
// for a rule of the host may name ports: such a flow needs a mark too.
func (w *route) settle(src netip.AddrPort) *refusal {
	w.flow.Src = src
	if w.mark == 0 && w.strays() != nil {
		return w.lead()
	}
	return nil
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

// admit lets the answers in and looks for the last time where the kernel would
// send the flow.
func (w *route) admit(fd int) error {
	held, err := w.lane.relay.ways.Admit(w.flow, fd)
	if err != nil {
		return w.limited(err)
	}
	w.held = held
	w.admitted.Store(true)
	if lim := w.strays(); lim != nil {
		w.release()
		return w.lane.blocked(*lim)
	}
	return nil
}

// still is called before the first answer to datagrams is passed on. It refuses a
// flow whose way was taken away meanwhile: what was sent again then went by another,
// and so may have the answer.
func (w *route) still() *refusal {
	if lim := w.undone(); lim != nil {
		return w.lane.blocked(*lim)
	}
	return nil
}

// confirm is called when the socket is connected and, for datagrams, the first
// one was sent. It holds what the host's firewall made of the flow against what
// the twin's did.
func (w *route) confirm() *refusal {
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
