package relay

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// protocolOf reads the protocol and the destination of a packet, whole or a
// fragment. It decides what the stack gets to see: TCP and UDP, nothing else. On a
// promiscuous interface the stack would answer an echo request for any address in
// the world by itself.
func protocolOf(typ uint16, p []byte) (proto byte, dst netip.Addr, ok bool) {
	switch {
	case typ == etherIPv4 && len(p) >= header.IPv4MinimumSize && p[0]>>4 == 4:
		return p[9], netip.AddrFrom4([4]byte(p[16:20])), true
	case typ == etherIPv6 && len(p) >= header.IPv6MinimumSize && p[0]>>4 == 6:
		proto, dst = p[6], netip.AddrFrom16([16]byte(p[24:40]))
		if proto == unix.IPPROTO_FRAGMENT && len(p) >= header.IPv6MinimumSize+8 {
			proto = p[header.IPv6MinimumSize]
		}
		return proto, dst, true
	}
	return 0, dst, false
}

// names are the protocols that somebody may miss. The others go by number.
var names = map[byte]string{
	unix.IPPROTO_ICMP: "ICMP", unix.IPPROTO_IGMP: "IGMP", unix.IPPROTO_IPIP: "IP in IP", unix.IPPROTO_IPV6: "IPv6 in IP", unix.IPPROTO_DCCP: "DCCP",
	unix.IPPROTO_GRE: "GRE", unix.IPPROTO_ESP: "ESP", unix.IPPROTO_AH: "AH", unix.IPPROTO_ICMPV6: "ICMPv6", unix.IPPROTO_SCTP: "SCTP",
	unix.IPPROTO_UDPLITE: "UDP-Lite", unix.IPPROTO_L2TP: "L2TP",
}

// strange remembers a packet of a protocol that is not carried, so that a check
// which needed it is not taken for a loss. message is the packet's payload where it
// is ICMP.
func (r *Relay) strange(proto byte, dst netip.Addr, message []byte) {
	r.counts.dropped.Add(1)
	if r.cut || len(message) > 0 && chatter(proto, message[0]) {
		return
	}
	name := names[proto]
	switch {
	case len(message) > 0:
		name += fmt.Sprintf(" type %d", message[0])
	case name == "":
		name = fmt.Sprintf("protocol %d", proto)
	}
	r.limit(&way.Limit{Kind: way.Protocol, Subject: name + " to " + dst.String(), Reason: "only TCP, UDP and echo requests are carried"})
}

// unknown remembers a frame to a MAC that was never handed out, or no longer is: a
// neighbour that somebody inside wrote down. On the host's link there may be one.
func (r *Relay) unknown(itf *iface) {
	r.counts.dropped.Add(1)
	if !r.cut {
		r.limit(&way.Limit{Kind: way.Link, Subject: itf.Name, Reason: "frames went to a link address that the twin knows nobody at"})
	}
}

// aliens are the Ethernet types that somebody may miss.
var aliens = map[uint16]string{
	unix.ETH_P_8021Q: "VLAN", unix.ETH_P_8021AD: "VLAN", unix.ETH_P_PPP_DISC: "PPPoE", unix.ETH_P_PPP_SES: "PPPoE",
	unix.ETH_P_MPLS_UC: "MPLS", unix.ETH_P_MPLS_MC: "MPLS", unix.ETH_P_PAE: "802.1X",
}

// alien remembers a frame that is not of IP. What a bridge says to its like
// (01:80:c2:00:00:0x) nobody inside asked for.
func (r *Relay) alien(to MAC, typ uint16) {
	r.counts.dropped.Add(1)
	if r.cut || [5]byte(to[:5]) == [5]byte{0x01, 0x80, 0xc2} && to[5] < 0x10 {
		return
	}
	r.limit(&way.Limit{Kind: way.Protocol, Subject: cmp.Or(aliens[typ], "another Ethernet type"), Reason: "only IP and ARP are carried"})
}

// chatter reports whether an ICMP message is one that the twin's kernel sends by
// itself: an error about what the relay sent it, a reply, neighbour discovery,
// group membership. Nobody inside asked for them to go out.
func chatter(proto, typ byte) bool {
	if proto == unix.IPPROTO_ICMP {
		return typ == echoReply4 || typ == unreachable4 || typ == timeExceeded4 || typ == parameterProblem4
	}
	const membership2 = 143
	return typ < echoRequest6 || typ >= echoReply6 && typ <= neighAdvert+1 || typ == membership2
}

// toGroup remembers a datagram to a multicast or broadcast address. What the
// twin's kernel itself says to groups is no datagram.
func (r *Relay) toGroup(typ uint16, p []byte) {
	proto, dst, ok := protocolOf(typ, p)
	if !ok || proto != unix.IPPROTO_UDP || r.cut {
		return
	}
	subject := "UDP to " + dst.String()
	if n := int(p[0]&0xf) * 4; typ == etherIPv4 && len(p) >= n+4 && n >= header.IPv4MinimumSize {
		subject += fmt.Sprintf(" port %d", binary.BigEndian.Uint16(p[n+2:]))
	}
	r.limit(&way.Limit{Kind: way.Protocol, Subject: subject, Reason: "multicast and broadcast are not carried"})
}
