package relay

import (
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// FuzzPacket reads whatever a frame may hold behind its Ethernet header with all
// that reads it before the stack does. Nothing may panic: one frame would cut the
// twin.
func FuzzPacket(f *testing.F) {
	syn := make([]byte, 40)
	copy(syn, []byte{0x45, 0, 0, 40, 0, 1, 0x20, 0, 64, unix.IPPROTO_TCP, 0, 0, 192, 0, 2, 2, 203, 0, 113, 80})
	echo6 := make([]byte, 56)
	copy(echo6, []byte{0x60, 0, 0, 0, 0, 16, unix.IPPROTO_FRAGMENT, 64, 0x20, 1})
	copy(echo6[40:], []byte{unix.IPPROTO_ICMPV6, 0, 0, 1, 0, 0, 0, 7, echoRequest6})
	for _, b := range [][]byte{syn, echo6, syn[:19], echo6[:41], {0x4f}, {0x60}, nil} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &Relay{limits: newLimits(0)}
		for _, typ := range []uint16{etherIPv4, etherIPv6} {
			r.toGroup(typ, b)
			proto, dst, ok := protocolOf(typ, b)
			if !ok {
				continue
			}
			r.strange(proto, dst, nil)
			newHops().toward(&hop{addr: dst}, typ, b)
		}
		if len(b) >= header.TCPMinimumSize {
			mssOf(header.TCP(b))
		}
		d, part, ok := parse(b)
		if !ok {
			return
		}
		if part != nil {
			if d, ok = r.pieces.add(d, *part); !ok {
				return
			}
		}
		if !d.asks() {
			r.strange(d.proto, d.dst, d.payload)
			return
		}
		d.sound()
		if unreachablePacket(d.quote(), portUnreachable) == nil {
			t.Errorf("%x is quoted as no packet", b)
		}
	})
}
