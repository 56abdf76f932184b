package relay

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// answerBy takes over a raw socket of the twin. What is sent by it needs no
// socket that is bound to the sender's address, and the twin's conntrack puts
// back the address that its nat had changed.
func (l *loopback) answerBy(f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var family int
	cerr := rc.Control(func(fd uintptr) { family, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN) })
	if cerr != nil {
		return cerr
	}
	if err != nil {
		return err
	}
	if family == unix.AF_INET6 {
		l.raw[1] = f
	} else {
		l.raw[0] = f
	}
	return nil
}

// reply sends one datagram to a client in the twin. One that does not fit into a
// packet of lo is lost.
func (l *loopback) reply(from, to netip.AddrPort, payload []byte) {
	u := make([]byte, header.UDPMinimumSize+len(payload))
	copy(u[header.UDPMinimumSize:], payload)
	h := header.UDP(u)
	h.Encode(&header.UDPFields{SrcPort: from.Port(), DstPort: to.Port(), Length: uint16(len(u))})
	src, dst := address(from), address(to)
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, src, dst, uint16(len(u)))
	if sum = ^h.CalculateChecksum(checksum.Checksum(payload, sum)); sum == 0 {
		sum = 0xffff // 0 says that there is none (RFC 768)
	}
	h.SetChecksum(sum)
	l.send(to.Addr(), packet(src, dst, header.UDPProtocolNumber, u))
}

// unreachable tells a client in the twin that nobody takes its datagrams.
func (l *loopback) unreachable(at, client netip.AddrPort) {
	b := unreachablePacket(quoteUDP(stack.TransportEndpointID{
		LocalAddress: address(at), LocalPort: at.Port(), RemoteAddress: address(client), RemotePort: client.Port(),
	}), portUnreachable)
	if b != nil {
		l.send(client.Addr(), b)
	}
}

func address(a netip.AddrPort) tcpip.Address { return tcpip.AddrFromSlice(a.Addr().AsSlice()) }

// packet puts an IP header before a payload.
func packet(src, dst tcpip.Address, proto tcpip.TransportProtocolNumber, payload []byte) []byte {
	if src.Len() == header.IPv4AddressSize {
		b := make([]byte, header.IPv4MinimumSize, header.IPv4MinimumSize+len(payload))
		ip := header.IPv4(b)
		ip.Encode(&header.IPv4Fields{
			TotalLength: uint16(len(b) + len(payload)), TTL: 64, Protocol: uint8(proto), SrcAddr: src, DstAddr: dst,
		})
		ip.SetChecksum(^ip.CalculateChecksum())
		return append(b, payload...)
	}
	b := make([]byte, header.IPv6MinimumSize, header.IPv6MinimumSize+len(payload))
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(payload)), TransportProtocol: proto, HopLimit: 64, SrcAddr: src, DstAddr: dst,
	})
	return append(b, payload...)
}

// send is best effort, as everything that a kernel says without being asked.
func (l *loopback) send(to netip.Addr, b []byte) {
	f, sa := l.raw[0], unix.Sockaddr(&unix.SockaddrInet4{Addr: addr4(to)})
	if to.Is6() {
		f, sa = l.raw[1], &unix.SockaddrInet6{Addr: to.As16()}
	}
	if f == nil {
		return
	}
	rc, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Write(func(fd uintptr) bool { return unix.Sendto(int(fd), b, 0, sa) != unix.EAGAIN })
}

func addr4(a netip.Addr) (b [4]byte) {
	if a.Is4() {
		b = a.As4()
	}
	return b
}
