package relay

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// code is a reason in an ICMP "destination unreachable": RFC 792 and RFC 4443
// number them differently.
type code struct{ v4, v6 byte }

var (
	netUnreachable  = code{0, 0}
	hostUnreachable = code{1, 3}
	portUnreachable = code{3, 4}
	prohibited      = code{13, 1}
)

// Types of ICMP errors, and the one code that carries an MTU.
const (
	unreachable4, timeExceeded4, parameterProblem4 = 3, 11, 12
	unreachable6, packetTooBig                     = 1, 2

	fragmentationNeeded = 4
)

// codeOf finds what the twin is told for an error of an outer socket. False:
// nothing, the outside was silent.
func codeOf(err error) (code, bool) {
	switch {
	case errors.Is(err, unix.EHOSTUNREACH):
		return hostUnreachable, true
	case errors.Is(err, unix.ENETUNREACH):
		return netUnreachable, true
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return prohibited, true
	}
	return code{}, false
}

// complaint is an ICMP error: who makes it, and what it says.
type complaint struct {
	from      netip.Addr // not valid: the destination itself
	typ, code byte
	word      uint32 // the second of the header: an MTU, a pointer
}

// unreachable tells the twin that a packet did not get there. quote is the head of
// that packet.
func (l *lane) unreachable(quote []byte, c code) {
	if b := unreachablePacket(quote, c); b != nil {
		l.writeIP(b)
	}
}

// unreachablePacket is the message; nil when the quote is no packet.
func unreachablePacket(quote []byte, c code) []byte {
	if len(quote) > 0 && quote[0]>>4 == 4 {
		return complaint{typ: unreachable4, code: c.v4}.packet(quote)
	}
	return complaint{typ: unreachable6, code: c.v6}.packet(quote)
}

// tooBig tells the twin's kernel the MTU of the path, as the router at its
// narrowest place would.
func (l *lane) tooBig(quote []byte, mtu int) {
	if len(quote) > 0 && quote[0]>>4 == 4 {
		l.complain(quote, complaint{typ: unreachable4, code: fragmentationNeeded, word: uint32(mtu)})
		return
	}
	l.complain(quote, complaint{typ: packetTooBig, word: uint32(mtu)})
}

// complain sends an ICMP error about a packet.
func (l *lane) complain(quote []byte, c complaint) {
	if b := c.packet(quote); b != nil {
		l.writeIP(b)
	}
}

// packet is the message; nil when the quote is no packet. Linux looks for a socket
// by the ports in it and believes the message only if a TCP sequence number is one
// it sent.
func (c complaint) packet(quote []byte) []byte {
	var src, dst netip.Addr
	switch {
	case len(quote) >= header.IPv4MinimumSize && quote[0]>>4 == 4:
		q := header.IPv4(quote)
		src, dst = addr(q.DestinationAddress()), addr(q.SourceAddress())
	case len(quote) >= header.IPv6MinimumSize && quote[0]>>4 == 6:
		q := header.IPv6(quote)
		src, dst = addr(q.DestinationAddress()), addr(q.SourceAddress())
	default:
		return nil
	}
	if c.from.IsValid() && c.from.BitLen() == src.BitLen() {
		src = c.from
	}
	m := make([]byte, icmpHeader, icmpHeader+len(quote))
	m[0], m[1] = c.typ, c.code
	binary.BigEndian.PutUint32(m[4:], c.word)
	return wrapICMP(src, dst, 64, 0, append(m, quote...))
}

// quoteUDP makes the head of a datagram of a flow, for the stack does not keep it.
func quoteUDP(id stack.TransportEndpointID) []byte {
	var b []byte
	if id.LocalAddress.Len() == header.IPv4AddressSize {
		b = make([]byte, header.IPv4MinimumSize+header.UDPMinimumSize)
		ip := header.IPv4(b)
		ip.Encode(&header.IPv4Fields{
			TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.UDPProtocolNumber),
			SrcAddr: id.RemoteAddress, DstAddr: id.LocalAddress,
		})
		ip.SetChecksum(^ip.CalculateChecksum())
	} else {
		b = make([]byte, header.IPv6MinimumSize+header.UDPMinimumSize)
		header.IPv6(b).Encode(&header.IPv6Fields{
			PayloadLength: header.UDPMinimumSize, TransportProtocol: header.UDPProtocolNumber, HopLimit: 64,
			SrcAddr: id.RemoteAddress, DstAddr: id.LocalAddress,
		})
	}
	u := header.UDP(b[len(b)-header.UDPMinimumSize:])
	u.Encode(&header.UDPFields{SrcPort: id.RemotePort, DstPort: id.LocalPort, Length: header.UDPMinimumSize})
	return b
}
