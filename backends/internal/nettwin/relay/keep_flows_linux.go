package relay

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// sane reports what makes a flow none that a twin can have.
func sane(f way.Flow) error {
	src, dst := f.Src.Addr(), f.Dst.Addr()
	ok := src.IsValid() && dst.IsValid() && src.Zone() == "" && dst.Zone() == "" &&
		!src.IsUnspecified() && !dst.IsUnspecified() && !src.Is4In6() && !dst.Is4In6() &&
		src.Is6() == f.Lane.Six && dst.Is6() == f.Lane.Six
	switch f.Proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		ok = ok && f.Src.Port() != 0 && f.Dst.Port() != 0
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		ok = ok && (f.Proto == unix.IPPROTO_ICMPV6) == f.Lane.Six
	default:
		ok = false
	}
	if !ok {
		return errors.New("it is no flow of a twin")
	}
	return nil
}

// admit lets a flow in if the socket that came with it is bound to its source:
// the port is then the relay's own, and no packet of another process is let in.
func (k *keep) admit(f way.Flow, fd int) error {
	if err := cmp.Or(k.possible(f.Lane), sane(f), owns(fd, f)); err != nil {
		return err
	}
	key := f
	key.Lane = way.Lane{}
	k.flowMu.Lock()
	defer k.flowMu.Unlock()
	old := k.flows[key]
	switch {
	case old != nil && old.flow.Lane == f.Lane:
		old.times++
		return nil
	case old != nil: // an ended one that had the port before
		k.ways.Release(old.flow)
		delete(k.flows, key)
	case len(k.flows) >= maxAdmitted:
		return &way.Limit{Kind: way.Load, Subject: f.Dst.String(), Reason: fmt.Sprintf("a twin has at most %d flows at once on ways of its own", maxAdmitted)}
	}
	if err := k.ways.Admit(f); err != nil {
		return err
	}
	k.flows[key] = &admitted{flow: f, times: 1}
	return nil
}

func (k *keep) release(f way.Flow) {
	key := f
	key.Lane = way.Lane{}
	k.flowMu.Lock()
	defer k.flowMu.Unlock()
	a := k.flows[key]
	if a == nil || a.flow.Lane != f.Lane {
		return
	}
	if a.times--; a.times == 0 {
		k.ways.Release(a.flow)
		delete(k.flows, key)
	}
}

// owns reports whether a socket is bound to the source of a flow.
func owns(fd int, f way.Flow) error {
	if fd < 0 {
		return errors.New("the flow has no socket")
	}
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return fmt.Errorf("read protocol of socket: %w", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("read address of socket: %w", err)
	}
	if at := addrPort(sa); proto != int(f.Proto) || at != f.Src {
		return fmt.Errorf("the socket is bound to %s and not to %s", at, f.Src)
	}
	return nil
}

// addrPort is an address of a socket without its zone.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
