package nettwin

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"
)

// forger makes frames that no kernel would send, and some that one would.
type forger struct {
	*rand.Rand
	own, gateway []byte
	v4, v6       netip.Addr
}

// frame is one packet of some protocol with some bytes turned, or cut short.
func (f *forger) frame() []byte {
	kinds := []func() []byte{
		f.syn4, f.syn6, f.arp, f.contradiction, f.noise, f.fragment4, f.extensions6, f.neighbour6, f.echo, f.datagram,
	}
	b := kinds[f.IntN(len(kinds))]()
	for range f.IntN(4) {
		b[14+f.IntN(len(b)-14)] = byte(f.Uint32())
	}
	if f.IntN(3) == 0 {
		b = b[:14+f.IntN(len(b)-13)]
	}
	return b
}

// vnet is a virtio header that may fit the frame behind it or be a lie.
func (f *forger) vnet() []byte {
	h := make([]byte, 10)
	switch f.IntN(4) {
	case 0:
	case 1: // a segment to be cut
		h[0], h[1] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, unix.VIRTIO_NET_HDR_GSO_TCPV4
		binary.NativeEndian.PutUint16(h[2:], 54)
		binary.NativeEndian.PutUint16(h[4:], uint16(1+f.IntN(1500)))
		binary.NativeEndian.PutUint16(h[6:], 34)
		binary.NativeEndian.PutUint16(h[8:], 16)
	case 2: // the same in IPv6, or datagrams
		h[0], h[1] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, []byte{unix.VIRTIO_NET_HDR_GSO_TCPV6, unix.VIRTIO_NET_HDR_GSO_UDP, 5}[f.IntN(3)]
		binary.NativeEndian.PutUint16(h[2:], 74)
		binary.NativeEndian.PutUint16(h[4:], uint16(f.IntN(1500)))
		binary.NativeEndian.PutUint16(h[6:], 54)
		binary.NativeEndian.PutUint16(h[8:], uint16(6+10*f.IntN(2)))
	default:
		h = f.bytes(10)
		h[0] &= 3
	}
	return h
}

func (f *forger) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.Uint32())
	}
	return b
}

// somewhere is an address of the lab's server, or anything.
func (f *forger) somewhere4() netip.Addr {
	if f.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{203, 0, 113, 80})
	}
	return netip.AddrFrom4([4]byte(f.bytes(4)))
}

func (f *forger) somewhere6() netip.Addr {
	if f.IntN(2) == 0 {
		return netip.MustParseAddr("2001:db8:80::80")
	}
	return netip.AddrFrom16([16]byte(f.bytes(16)))
}

func (f *forger) syn4() []byte {
	return synFrame(f.own, f.gateway, f.v4, f.somewhere4(), uint16(f.Uint32()))
}

func (f *forger) syn6() []byte {
	return synFrame(f.own, f.gateway, f.v6, f.somewhere6(), uint16(f.Uint32()))
}

// ethernet begins a frame.
func (f *forger) ethernet(to []byte, typ uint16) []byte {
	return binary.BigEndian.AppendUint16(append(append([]byte{}, to...), f.own...), typ)
}

// arp asks for any address.
func (f *forger) arp() []byte {
	b := append(f.ethernet(f.gateway, unix.ETH_P_ARP), 0, 1, 8, 0, 6, 4, 0, byte(f.IntN(4)))
	return append(append(append(b, f.own...), f.v4.AsSlice()...), f.bytes(10)...)
}

// contradiction is a packet of any protocol whose headers disagree.
func (f *forger) contradiction() []byte {
	b := synFrame(f.own, f.gateway, f.v4, f.somewhere4(), 53)
	b[14+9] = []byte{1, 2, 6, 17, 47, 58, 132, byte(f.Uint32())}[f.IntN(8)]
	return append(b, f.bytes(1+f.IntN(1400))...)
}

func (f *forger) noise() []byte {
	typ := []uint16{unix.ETH_P_IP, unix.ETH_P_IPV6, unix.ETH_P_ARP, unix.ETH_P_8021Q, uint16(f.Uint32())}[f.IntN(5)]
	return append(f.ethernet(f.gateway, typ), f.bytes(1+f.IntN(1400))...)
}

// ip4 is a packet with a right header checksum.
func (f *forger) ip4(protocol byte, fragment uint16, payload []byte) []byte {
	b := synFrame(f.own, f.gateway, f.v4, f.somewhere4(), 7)[:34]
	ip := b[14:]
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(ip[4:], uint16(f.IntN(8))) // so that fragments meet
	binary.BigEndian.PutUint16(ip[6:], fragment)
	ip[9] = protocol
	clear(ip[10:12])
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	return append(b, payload...)
}

// fragment4 is a piece of a datagram, a segment or an echo request; pieces
// overlap and some reach past 64 KiB.
func (f *forger) fragment4() []byte {
	more := uint16(f.IntN(2)) << 13
	at := uint16([]int{0, 1, 185, f.IntN(1 << 13)}[f.IntN(4)])
	return f.ip4([]byte{1, 6, 17}[f.IntN(3)], more|at, f.bytes(8*(1+f.IntN(180))))
}

// ip6 is a packet with a first header of some kind.
func (f *forger) ip6(next byte, payload []byte) []byte {
	b := synFrame(f.own, f.gateway, f.v6, f.somewhere6(), 7)[:54]
	binary.BigEndian.PutUint16(b[18:], uint16(len(payload)))
	b[20] = next
	return append(b, payload...)
}

// extensions6 is a chain of extension headers before something.
func (f *forger) extensions6() []byte {
	kinds := []byte{0, 43, 44, 60, 51, 135, 59}
	first := kinds[f.IntN(len(kinds))]
	var chain []byte
	for range 1 + f.IntN(6) {
		h := f.bytes(8)
		h[0], h[1] = kinds[f.IntN(len(kinds))], byte(f.IntN(2))
		chain = append(chain, h...)
	}
	chain[len(chain)-8] = []byte{6, 17, 58}[f.IntN(3)]
	return f.ip6(first, append(chain, f.bytes(f.IntN(600))...))
}

// neighbour6 is a message of neighbour discovery with options that may be wrong.
func (f *forger) neighbour6() []byte {
	m := append([]byte{byte(133 + f.IntN(5)), 0, 0, 0, 0, 0, 0, 0}, f.somewhere6().AsSlice()...)
	for range f.IntN(4) {
		m = append(m, append([]byte{byte(f.IntN(6)), byte(f.IntN(4))}, f.bytes(6)...)...)
	}
	return f.ip6(58, m)
}

// echo is an ICMP message, mostly an echo request.
func (f *forger) echo() []byte {
	m := append([]byte{byte(f.IntN(20)), byte(f.IntN(16))}, f.bytes(6+f.IntN(1200))...)
	if f.IntN(2) == 0 {
		m[0], m[1] = 8, 0
	}
	if f.IntN(2) == 0 {
		return f.ip4(1, 0, m)
	}
	if m[0] == 8 {
		m[0] = 128
	}
	return f.ip6(58, m)
}

// datagram is one with a length of its own.
func (f *forger) datagram() []byte {
	u := f.bytes(8 + f.IntN(1200))
	binary.BigEndian.PutUint16(u[4:], uint16(f.IntN(2*len(u))))
	clear(u[6:8])
	if f.IntN(2) == 0 {
		return f.ip4(17, 0, u)
	}
	return f.ip6(17, u)
}
