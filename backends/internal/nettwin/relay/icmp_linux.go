package relay

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
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

// unreachable tells the twin that a packet did not get there. quote is the head
// of that packet; Linux looks for a socket by the ports in it and believes the
// message only if a TCP sequence number is one it sent.
func (l *lane) unreachable(quote []byte, c code) {
	if b := unreachablePacket(quote, c); b != nil {
		l.writeIP(b)
	}
}

// unreachablePacket is the message; nil when the quote is no packet.
func unreachablePacket(quote []byte, c code) []byte {
	const icmp = 8
	if len(quote) < header.IPv4MinimumSize {
		return nil
	}
	if quote[0]>>4 == 4 {
		q := header.IPv4(quote)
		b := make([]byte, header.IPv4MinimumSize+icmp+len(quote))
		ip := header.IPv4(b)
		ip.Encode(&header.IPv4Fields{
			TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
			SrcAddr: q.DestinationAddress(), DstAddr: q.SourceAddress(),
		})
		ip.SetChecksum(^ip.CalculateChecksum())
		m := b[header.IPv4MinimumSize:]
		m[0], m[1] = 3, c.v4
		copy(m[icmp:], quote)
		binary.BigEndian.PutUint16(m[2:], ^checksum.Checksum(m, 0))
		return b
	}
	if len(quote) < header.IPv6MinimumSize {
		return nil
	}
	q := header.IPv6(quote)
	src, dst := q.DestinationAddress(), q.SourceAddress()
	b := make([]byte, header.IPv6MinimumSize+icmp+len(quote))
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: uint16(icmp + len(quote)), TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: 64, SrcAddr: src, DstAddr: dst,
	})
	m := b[header.IPv6MinimumSize:]
	m[0], m[1] = 1, c.v6
	copy(m[icmp:], quote)
	sum := header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: header.ICMPv6(m), Src: src, Dst: dst})
	binary.BigEndian.PutUint16(m[2:], sum)
	return b
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
