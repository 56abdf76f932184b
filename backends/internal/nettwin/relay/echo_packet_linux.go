package relay

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// The types of echo messages, and where an ICMP message has its parts.
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129

	icmpHeader = 8
	icmpSum    = 2
	icmpID     = 4
)

// datagram is one IP packet of the twin, whole or put together again.
type datagram struct {
	src, dst netip.Addr
	proto    byte
	ttl, tos byte
	// whole: it may not be cut on the way (the DF bit, or IPv6 that was not cut
	// by the twin's kernel).
	whole   bool
	options bool // of IPv4
	head    []byte
	payload []byte
}

// piece is where a fragment belongs.
type piece struct {
	id   uint32
	at   int
	more bool
}

// parse reads an IP packet. The piece is nil when the packet is no fragment; ok
// is false for one that no kernel would take.
func parse(p []byte) (d datagram, part *piece, ok bool) {
	if len(p) > 0 && p[0]>>4 == 6 {
		return parse6(p)
	}
	ip := header.IPv4(p)
	if len(p) < header.IPv4MinimumSize || !ip.IsValid(len(p)) {
		return d, nil, false
	}
	n := int(ip.HeaderLength())
	d = datagram{
		src: addr(ip.SourceAddress()), dst: addr(ip.DestinationAddress()), proto: ip.Protocol(), ttl: ip.TTL(), tos: p[1],
		whole: ip.Flags()&header.IPv4FlagDontFragment != 0, options: n > header.IPv4MinimumSize,
		head: p[:n], payload: p[n:ip.TotalLength()],
	}
	if ip.More() || ip.FragmentOffset() != 0 {
		part = &piece{uint32(ip.ID()), int(ip.FragmentOffset()), ip.More()}
	}
	return d, part, true
}

func parse6(p []byte) (d datagram, part *piece, ok bool) {
	const size, fragment = header.IPv6MinimumSize, 8
	ip := header.IPv6(p)
	if len(p) < size || !ip.IsValid(len(p)) {
		return d, nil, false
	}
	class, _ := ip.TOS()
	d = datagram{
		src: addr(ip.SourceAddress()), dst: addr(ip.DestinationAddress()), proto: ip.NextHeader(), ttl: ip.HopLimit(), tos: class,
		whole: true, head: p[:size], payload: p[size : size+int(ip.PayloadLength())],
	}
	if d.proto != unix.IPPROTO_FRAGMENT {
		return d, nil, true
	}
	f := d.payload
	if len(f) < fragment {
		return d, nil, false
	}
	at := binary.BigEndian.Uint16(f[2:])
	d.proto, d.whole, d.payload = f[0], false, f[fragment:]
	return d, &piece{binary.BigEndian.Uint32(f[4:]), int(at &^ 7), at&1 != 0}, true
}

func addr(a tcpip.Address) netip.Addr {
	n, _ := netip.AddrFromSlice(a.AsSlice())
	return n
}

// asks reports whether the payload is an echo request as the far end would take
// it: a wrong checksum is met with silence everywhere.
func (d *datagram) asks() bool {
	p := d.payload
	switch {
	case len(p) < icmpHeader || p[1] != 0:
		return false
	case d.proto == unix.IPPROTO_ICMP && d.dst.Is4():
		return p[0] == echoRequest4
	case d.proto == unix.IPPROTO_ICMPV6 && d.dst.Is6():
		return p[0] == echoRequest6
	}
	return false
}

// sound reports whether the checksum of an ICMP message is right.
func (d *datagram) sound() bool {
	var start uint16
	if d.dst.Is6() {
		start = header.PseudoHeaderChecksum(header.ICMPv6ProtocolNumber, stackAddr(d.src), stackAddr(d.dst), uint16(len(d.payload)))
	}
	return checksum.Checksum(d.payload, start) == 0xffff
}

func stackAddr(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

// quote is the head of the packet as an ICMP error repeats it.
func (d *datagram) quote() []byte {
	q := append(make([]byte, 0, len(d.head)+icmpHeader), d.head...)
	if d.dst.Is6() {
		q[6] = d.proto // of a fragmented packet the head named the fragment header
	}
	return append(q, d.payload[:icmpHeader]...)
}

// setID gives an ICMP message another identifier, and the checksum that goes with
// it (RFC 1624).
func setID(m []byte, id uint16) {
	sum := uint32(^binary.BigEndian.Uint16(m[icmpSum:])) + uint32(^binary.BigEndian.Uint16(m[icmpID:])) + uint32(id)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(m[icmpID:], id)
	binary.BigEndian.PutUint16(m[icmpSum:], ^uint16(sum))
}

// wrapICMP wraps an ICMP message from src to dst into IP and makes its checksum. One
// longer than the link's MTU is not cut: nothing that receives looks at that.
func wrapICMP(src, dst netip.Addr, ttl, tos byte, message []byte) []byte {
	clear(message[icmpSum : icmpSum+2])
	if dst.Is4() {
		b := make([]byte, header.IPv4MinimumSize, header.IPv4MinimumSize+len(message))
		ip := header.IPv4(b)
		ip.Encode(&header.IPv4Fields{
			TOS: tos, TotalLength: uint16(len(b) + len(message)), TTL: ttl, Protocol: uint8(header.ICMPv4ProtocolNumber),
			SrcAddr: stackAddr(src), DstAddr: stackAddr(dst),
		})
		ip.SetChecksum(^ip.CalculateChecksum())
		binary.BigEndian.PutUint16(message[icmpSum:], ^checksum.Checksum(message, 0))
		return append(b, message...)
	}
	b := make([]byte, header.IPv6MinimumSize, header.IPv6MinimumSize+len(message))
	header.IPv6(b).Encode(&header.IPv6Fields{
		TrafficClass: tos, PayloadLength: uint16(len(message)), TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: ttl,
		SrcAddr: stackAddr(src), DstAddr: stackAddr(dst),
	})
	start := header.PseudoHeaderChecksum(header.ICMPv6ProtocolNumber, stackAddr(src), stackAddr(dst), uint16(len(message)))
	binary.BigEndian.PutUint16(message[icmpSum:], ^checksum.Checksum(message, start))
	return append(b, message...)
}
