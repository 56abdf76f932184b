package relay

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

const (
	ethHeader    = 14
	etherIPv4    = 0x0800
	etherARP     = 0x0806
	etherIPv6    = 0x86dd
	arpLength    = 28
	arpRequest   = 1
	arpReply     = 2
	neighSolicit = 135
	neighAdvert  = 136
)

// arp answers a request for any address with that next hop's MAC. Whether the
// next hop is one the host uses is asked when a flow begins.
func (r *Relay) arp(itf *iface, from MAC, p []byte) {
	if len(p) < arpLength || binary.BigEndian.Uint16(p) != 1 || binary.BigEndian.Uint16(p[2:]) != etherIPv4 ||
		binary.BigEndian.Uint16(p[6:]) != arpRequest {
		return
	}
	sender, target := p[14:18], p[24:28]
	// An announcement, or a check whether an address is free: no answer means
	// that it is.
	if bytes.Equal(sender, target) || bytes.Equal(sender, []byte{0, 0, 0, 0}) {
		return
	}
	h := r.hops.ask(itf, netip.AddrFrom4([4]byte(target)))
	if h == nil {
		r.counts.dropped.Add(1)
		return
	}
	f := make([]byte, ethHeader+arpLength)
	ethernet(f, from, h.mac, etherARP)
	a := f[ethHeader:]
	copy(a, p[:6])
	binary.BigEndian.PutUint16(a[6:], arpReply)
	copy(a[8:], h.mac[:])
	copy(a[14:], target)
	copy(a[18:], p[8:14])
	copy(a[24:], sender)
	itf.writeFrame(f)
}

// solicited answers an IPv6 neighbour solicitation. It reports whether p, an
// IPv6 packet, was one.
func (r *Relay) solicited(itf *iface, from MAC, p []byte) bool {
	const icmp = header.IPv6MinimumSize
	if len(p) < icmp+24 || p[6] != uint8(header.ICMPv6ProtocolNumber) || p[icmp] != neighSolicit {
		return false
	}
	src, target := netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[icmp+8:icmp+24]))
	if src.IsUnspecified() || target.IsMulticast() { // duplicate address detection
		return true
	}
	h := r.hops.ask(itf, target)
	if h == nil {
		r.counts.dropped.Add(1)
		return true
	}
	f := make([]byte, ethHeader+icmp+32)
	ethernet(f, from, h.mac, etherIPv6)
	from16, to16 := tcpip.AddrFrom16(target.As16()), tcpip.AddrFrom16(src.As16())
	header.IPv6(f[ethHeader:]).Encode(&header.IPv6Fields{
		PayloadLength: 32, TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: 255, SrcAddr: from16, DstAddr: to16,
	})
	a := f[ethHeader+icmp:]
	a[0], a[4] = neighAdvert, 0xe0 // router, solicited, override
	copy(a[8:], f[ethHeader+8:ethHeader+24])
	a[24], a[25] = 2, 1 // option: target link-layer address
	copy(a[26:], h.mac[:])
	sum := header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: header.ICMPv6(a), Src: from16, Dst: to16})
	binary.BigEndian.PutUint16(a[2:], sum)
	itf.writeFrame(f)
	return true
}

func ethernet(f []byte, to, from MAC, typ uint16) {
	copy(f, to[:])
	copy(f[6:], from[:])
	binary.BigEndian.PutUint16(f[12:], typ)
}
