package relay

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// lane is one way out of the twin, a next hop that is in use or all destinations on
// one link: a NIC of the stack with a forwarder of its own for each protocol, so a
// flow knows its lane.
//
// It is a link endpoint that writes straight to the TAP. Those that come with
// the stack do not do here: link/channel drops when its queue is full, and
// link/fdbased ignores segmentation offload on anything but a socket.
type lane struct {
	relay *Relay
	hop   *hop
	nic   tcpip.NICID
	disp  stack.NetworkDispatcher
	tcp   *tcp.Forwarder
	udp   *udp.Forwarder
	marks [2]atomic.Uint32 // of IPv4 and IPv6 flows on the host; 0 until it was needed
}

// gsoMax is the largest segment handed to the twin's kernel to cut.
const gsoMax = 65000

// deliver gives the stack a packet that came from the twin.
func (l *lane) deliver(typ uint16, b buffer.Buffer) {
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: b})
	proto := header.IPv4ProtocolNumber
	if typ == etherIPv6 {
		proto = header.IPv6ProtocolNumber
	}
	l.disp.DeliverNetworkPacket(proto, p)
	p.DecRef()
}

// WritePackets implements [stack.LinkWriter].
func (l *lane) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	for _, p := range pkts.AsSlice() {
		switch l.write(p) {
		case 0:
			n++
		case unix.EAGAIN, unix.ENOBUFS:
			return n, &tcpip.ErrNoBufferSpace{}
		default:
			return n, &tcpip.ErrAborted{}
		}
	}
	return n, nil
}

func (l *lane) write(p *stack.PacketBuffer) unix.Errno {
	itf := l.hop.itf
	var room [vnetHeader + ethHeader]byte
	h := room[:vnetHeader+itf.head]
	offload(h[:vnetHeader], itf.head, p)
	typ := etherOf(p)
	if !itf.Tun {
		ethernet(h[vnetHeader:], *itf.mac.Load(), l.from(p.NetworkHeader().Slice()), typ)
	}
	var iovs [24]unix.Iovec
	iov := append(iovs[:0], unix.Iovec{Base: &h[0]})
	iov[0].SetLen(len(h))
	for _, v := range p.AsSlices() {
		if len(v) > 0 {
			iov = append(iov, unix.Iovec{Base: &v[0]})
			iov[len(iov)-1].SetLen(len(v))
		}
	}
	return itf.writev(iov)
}

// offload fills a virtio_net_hdr: which checksum is still to be made and into
// what pieces the kernel cuts the segment. All zero when the packet is complete.
func offload(h []byte, head int, p *stack.PacketBuffer) {
	g := p.GSOOptions
	if g.Type == stack.GSONone || !g.NeedsCsum {
		return
	}
	h[0] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
	binary.NativeEndian.PutUint16(h[2:], uint16(head+p.HeaderSize()))
	binary.NativeEndian.PutUint16(h[6:], uint16(head)+g.L3HdrLen)
	binary.NativeEndian.PutUint16(h[8:], g.CsumOffset)
	if p.Data().Size() > int(g.MSS) {
		h[1] = unix.VIRTIO_NET_HDR_GSO_TCPV4
		if g.Type == stack.GSOTCPv6 {
			h[1] = unix.VIRTIO_NET_HDR_GSO_TCPV6
		}
		binary.NativeEndian.PutUint16(h[4:], g.MSS)
	}
}

// writeIP sends one IP packet of our own making to the twin.
func (l *lane) writeIP(ip []byte) {
	itf := l.hop.itf
	if itf.Tun {
		itf.writeFrame(ip)
		return
	}
	f := make([]byte, ethHeader+len(ip))
	typ := uint16(etherIPv4)
	if ip[0]>>4 == 6 {
		typ = etherIPv6
	}
	ethernet(f, *itf.mac.Load(), l.from(ip), typ)
	copy(f[ethHeader:], ip)
	itf.writeFrame(f)
}

// from is the MAC that a packet to the twin comes from: that of its next hop.
func (l *lane) from(ip []byte) MAC {
	switch {
	case !l.hop.link:
		return l.hop.mac
	case ip[0]>>4 == 4:
		return l.relay.hops.mac(l.hop.itf, ip[12:16])
	default:
		return l.relay.hops.mac(l.hop.itf, ip[8:24])
	}
}

// The rest of [stack.LinkEndpoint] and [stack.GSOEndpoint].

func (l *lane) MTU() uint32                      { return l.hop.itf.MTU }
func (l *lane) SetMTU(uint32)                    {}
func (l *lane) MaxHeaderLength() uint16          { return vnetHeader + ethHeader }
func (l *lane) LinkAddress() tcpip.LinkAddress   { return "" }
func (l *lane) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities: the kernel hands over packets whose checksum is still to be made
// (CHECKSUM_PARTIAL); checking it would drop them all.
func (l *lane) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}
func (l *lane) Attach(d stack.NetworkDispatcher)        { l.disp = d }
func (l *lane) IsAttached() bool                        { return l.disp != nil }
func (l *lane) Wait()                                   {}
func (l *lane) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (l *lane) AddHeader(*stack.PacketBuffer)           {}
func (l *lane) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *lane) Close()                                  {}
func (l *lane) SetOnCloseAction(func())                 {}
func (l *lane) GSOMaxSize() uint32                      { return gsoMax }
func (l *lane) SupportedGSO() stack.SupportedGSO        { return stack.HostGSOSupported }

var (
	_ stack.LinkEndpoint = (*lane)(nil)
	_ stack.GSOEndpoint  = (*lane)(nil)
)
