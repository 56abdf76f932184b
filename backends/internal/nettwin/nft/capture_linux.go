package nft

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Capture gives packets that the inside sends to itself, and that none of its
// own sockets takes, to a transparent socket (IP_TRANSPARENT). The packets stay
// as they are, so that every rule of the inside sees the true addresses, no port
// is taken, and the socket is told the destination.
//
// Redirecting them (nat in the output hook) shows the firewall of the inside
// another address and port, tells a datagram socket nothing of where a datagram
// was to go, and comes either before or after the nat of the inside; then one of
// the two is without effect. Transparent sockets need nft_tproxy and nft_socket
// (4.18, 4.19).
type Capture struct {
	Flows Flows
	Proto uint8 // IPPROTO_TCP or IPPROTO_UDP
	// Addr is the destination, as the nat of the inside left it; when unspecified,
	// any local address of its family.
	Addr netip.Addr
	Port uint16 // 0: every port
	To   netip.AddrPort
}

// Flows says how a packet came to be sent to the inside itself.
type Flows uint8

const (
	// Direct flows have an address of the inside for a destination.
	Direct Flows = iota
	// Translated flows got it from nat.
	Translated
	// Diverted flows have another destination and were routed to loopback, as for
	// a proxy that is given them by TPROXY.
	Diverted
)

// loIndex is the number of lo in every network namespace (LOOPBACK_IFINDEX).
const loIndex = 1

func is(b ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: b} }

func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// untouched are the first rules: what comes from elsewhere, and what a socket
// inside takes. A socket expression ends a rule when there is no socket. A
// transparent socket is one of the relay's, or one that a rule of the inside has
// already given the packet to; a waiting one of the relay's (TIME_WAIT) must not
// keep a new stream from the same port away from the socket that accepts, and
// that it is no full socket shows when its mark is asked for.
func untouched() [][]expr.Any {
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	transparent := &expr.Socket{Key: expr.SocketKeyTransparent, Register: 1}
	return [][]expr.Any{
		{&expr.Meta{Key: expr.MetaKeyIIF, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: native(loIndex)}, accept},
		{transparent, is(0), accept},
		{transparent, is(1), &expr.Socket{Key: expr.SocketKeyMark, Register: 1}, accept},
	}
}

// rule is the capture in the kernel's words: origin, family, destination,
// protocol, port, socket.
func (c Capture) rule() []expr.Any {
	family, offset := byte(unix.NFPROTO_IPV4), uint32(16) // of daddr in the header
	if c.To.Addr().Is6() {
		family, offset = unix.NFPROTO_IPV6, 24
	}
	es := []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, is(family)}
	if c.Flows == Translated {
		es = append(es, status(ipsDstNAT)...)
	}
	switch {
	case c.Flows == Diverted:
		es = append(es, destinationType(expr.CmpOpNeq)...)
	case c.Addr.IsUnspecified():
		es = append(es, destinationType(expr.CmpOpEq)...)
	default:
		a := c.Addr.AsSlice()
		es = append(es, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(a))}, is(a...))
	}
	es = append(es, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, is(c.Proto))
	if c.Port != 0 {
		es = append(es, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			is(binary.BigEndian.AppendUint16(nil, c.Port)...))
	}
	return append(es,
		&expr.Immediate{Register: 1, Data: c.To.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, c.To.Port())},
		&expr.TProxy{Family: family, TableFamily: unix.NFPROTO_INET, RegAddr: 1, RegPort: 2},
		&expr.Verdict{Kind: expr.VerdictAccept})
}

// destinationType compares the type of the destination with "local".
func destinationType(op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
		&expr.Cmp{Op: op, Register: 1, Data: native(unix.RTN_LOCAL)},
	}
}

// ipsDstNAT is IPS_DST_NAT of the kernel's nf_conntrack_common.h.
const ipsDstNAT = 1 << 5

// status matches packets of a tracked flow with one bit of its status set.
func status(bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(bit), Xor: native(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: native(0)},
	}
}
