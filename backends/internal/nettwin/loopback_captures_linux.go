package nettwin

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/sockdiag"
)

// captures lists what is taken from the twin now, each thing once, in the order
// in which the rules stand: flows whose destination nat changed are told from the
// others by the first rule that takes them.
//
// That something inside listens needs no rule, for its socket comes first. Only
// while an ended connection to it waits does the kernel not look for the listener,
// so what the inside has is left out as soon as it is known.
func (l *loopback) captures(inside []sockdiag.Socket) []nft.Capture {
	var cs []nft.Capture
	for _, s := range l.onHost {
		sv := service{s.Proto, s.Addr.Port()}
		if l.released[sv] || slices.ContainsFunc(inside, func(s sockdiag.Socket) bool { return service{s.Proto, s.Addr.Port()} == sv }) {
			continue
		}
		allowed := slices.Contains(l.ports, sv.port)
		for _, a := range addresses(s) {
			if allowed {
				cs = l.capture(cs, nft.Direct, s.Proto, a, sv.port)
			}
			if allowed || reachable(s) {
				cs = l.capture(cs, nft.Translated, s.Proto, a, sv.port)
			}
		}
	}
	for _, a := range l.servers {
		at := netip.AddrPortFrom(a, dnsPort)
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			takes := func(s sockdiag.Socket) bool { return s.Proto == proto && s.Takes(at) }
			if slices.ContainsFunc(l.onHost, takes) && !slices.ContainsFunc(inside, takes) {
				cs = l.capture(cs, nft.Direct, proto, a, dnsPort)
			}
		}
	}
	for _, six := range []bool{false, true} { // without sockets for them, nothing
		cs = l.capture(cs, nft.Diverted, unix.IPPROTO_TCP, unspecified(six), 0)
		cs = l.capture(cs, nft.Diverted, unix.IPPROTO_UDP, unspecified(six), 0)
	}
	slices.SortFunc(cs, order)
	return slices.Compact(cs)
}

func (l *loopback) capture(cs []nft.Capture, f nft.Flows, proto uint8, addr netip.Addr, port uint16) []nft.Capture {
	to, ok := l.gates[gate{f, proto, addr.Is6()}]
	if !ok {
		return cs
	}
	return append(cs, nft.Capture{Flows: f, Proto: proto, Addr: addr, Port: port, To: to})
}

// addresses that a socket of the host takes packets for, as rules name them.
func addresses(s sockdiag.Socket) []netip.Addr {
	a := s.Addr.Addr().Unmap()
	if a == netip.IPv6Unspecified() && !s.Only6 {
		return []netip.Addr{a, netip.IPv4Unspecified()}
	}
	return []netip.Addr{a}
}

// firstEphemeral is where the kernel's range of ports for clients begins by
// default (net.ipv4.ip_local_port_range).
const firstEphemeral = 32768

// reachable reports whether a socket is one that nat may lead to, and not the
// socket of a client that waits for an answer: that takes datagrams from anybody
// too, on a port that the kernel chose, on every address.
func reachable(s sockdiag.Socket) bool {
	return s.Proto == unix.IPPROTO_TCP || s.Addr.Port() < firstEphemeral || !s.Addr.Addr().IsUnspecified()
}

func order(a, b nft.Capture) int {
	return cmp.Or(
		-cmp.Compare(rank(a.Flows), rank(b.Flows)), cmp.Compare(a.Proto, b.Proto), a.Addr.Compare(b.Addr),
		cmp.Compare(a.Port, b.Port), a.To.Compare(b.To))
}

// rank puts translated flows first.
func rank(f nft.Flows) int {
	if f == nft.Translated {
		return 1
	}
	return 0
}

func unspecified(six bool) netip.Addr {
	if six {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// diverts reports whether packets to foreign addresses are routed to the host
// itself, by "is IPv6": "local default dev lo table 100" is how a proxy gets them
// by TPROXY.
func (n *network) diverts() (out [2]bool) {
	for _, m := range n.routes {
		if len(m) < unix.SizeofRtMsg || m[7] != unix.RTN_LOCAL {
			continue
		}
		table := uint32(m[4])
		if b := rtnl.Find(m[unix.SizeofRtMsg:], unix.RTA_TABLE); len(b) == 4 {
			table = binary.NativeEndian.Uint32(b)
		}
		if table == unix.RT_TABLE_LOCAL {
			continue
		}
		if m[0] == unix.AF_INET6 {
			out[1] = true
		} else {
			out[0] = true
		}
	}
	return out
}
