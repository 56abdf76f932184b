package relay

import (
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
)

// vnetHeader is the size of struct virtio_net_hdr, which stands before every
// frame on a TAP opened with IFF_VNET_HDR.
const vnetHeader = 10

// iface is one TAP or TUN.
type iface struct {
	Interface
	mac  atomic.Pointer[MAC] // the twin's side, which the inside may change
	own  *hop                // the link itself, for packets without a next hop
	head int                 // bytes before a packet, behind the virtio header
	tap  *os.File
	fd   int
}

func newInterface(i Interface, tap *os.File) (*iface, error) {
	f := &iface{Interface: i, tap: tap, head: ethHeader}
	if i.Tun {
		f.head = 0
	}
	f.own = &hop{itf: f}
	var mac MAC
	copy(mac[:], i.MAC)
	f.mac.Store(&mac)
	// Fd would make the descriptor blocking.
	rc, err := tap.SyscallConn()
	if err != nil {
		return nil, err
	}
	return f, rc.Control(func(fd uintptr) { f.fd = int(fd) })
}

// writeFrame sends a frame that needs no offload. A TAP write runs the twin's
// receive path before it returns, so there is no queue here to overflow.
func (i *iface) writeFrame(frame []byte) {
	var h [vnetHeader]byte
	iov := [2]unix.Iovec{{Base: &h[0]}, {Base: &frame[0]}}
	iov[0].SetLen(len(h))
	iov[1].SetLen(len(frame))
	i.writev(iov[:])
}

func (i *iface) writev(iov []unix.Iovec) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_WRITEV, uintptr(i.fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)))
	return e
}

// tiers are the sizes of the buffers one frame is read into. A frame of 3 KB
// must not pin 64 KB: netstack counts the buffer, not the bytes, against the
// receive window.
var tiers = [...]int{2048, 4096, 16384, 65536}

// reader reads frames from one TAP. Buffers that a frame used are given away
// with it and replaced before the next.
type reader struct {
	relay *Relay
	itf   *iface
	vnet  [vnetHeader]byte
	eth   [ethHeader]byte
	views [len(tiers)]*buffer.View
	iov   [len(tiers) + 2]unix.Iovec
}

// run reads until the TAP is gone.
func (r *reader) run() error {
	rc, err := r.itf.tap.SyscallConn()
	if err != nil {
		return err
	}
	for {
		var fail unix.Errno
		err := rc.Read(func(uintptr) bool {
			for range 64 { // then let others have the processor
				switch fail = r.one(); fail {
				case 0, unix.EINTR:
				case unix.EAGAIN:
					fail = 0
					return false
				default:
					return true
				}
			}
			return true
		})
		if err != nil {
			return err
		}
		if fail != 0 {
			// EBADFD: the inside deleted the link, or the namespace it moved it to.
			return fail
		}
	}
}

func (r *reader) one() unix.Errno {
	r.iov[0].Base, r.iov[1].Base = &r.vnet[0], &r.eth[0]
	r.iov[0].SetLen(len(r.vnet))
	r.iov[1].SetLen(r.itf.head)
	for i := range r.views {
		if r.views[i] == nil {
			r.views[i] = buffer.NewViewSize(tiers[i])
			r.iov[2+i].Base = r.views[i].BasePtr()
			r.iov[2+i].SetLen(tiers[i])
		}
	}
	n, _, e := unix.RawSyscall(unix.SYS_READV, uintptr(r.itf.fd), uintptr(unsafe.Pointer(&r.iov[0])), uintptr(len(r.iov)))
	if e != 0 {
		return e
	}
	if n := int(n) - vnetHeader - r.itf.head; n > 0 {
		r.frame(n)
	}
	return 0
}

// frame takes one frame with n bytes behind its Ethernet header.
func (r *reader) frame(n int) {
	head := r.views[0].AsSlice()
	head = head[:min(n, len(head))]
	if r.itf.Tun {
		r.bare(head, n)
		return
	}
	to, from := MAC(r.eth[:6]), MAC(r.eth[6:12])
	if from != *r.itf.mac.Load() && from[0]&1 == 0 {
		r.itf.mac.Store(&from) // answers must find a link that was given another
	}
	switch typ := binary.BigEndian.Uint16(r.eth[12:]); typ {
	case etherARP:
		r.relay.arp(r.itf, from, head)
	case etherIPv4, etherIPv6:
		if typ == etherIPv6 && r.relay.solicited(r.itf, from, head) {
			return
		}
		if to[0]&1 == 1 {
			r.relay.toGroup(typ, head)
			return
		}
		h := r.relay.hops.find(r.itf, to)
		if to == from { // a link that does not ask sends to its own MAC
			if !r.itf.Mute { // the host's asks: there it would get nowhere
				r.relay.counts.dropped.Add(1)
				return
			}
			h = r.itf.own
		}
		if h == nil {
			r.relay.unknown(r.itf)
			return
		}
		r.pass(h, typ, head, n)
	default:
		r.relay.alien(to, typ)
	}
}

// bare takes one packet of n bytes from a TUN.
func (r *reader) bare(head []byte, n int) {
	switch {
	case head[0]>>4 == 4 && n >= 20 && head[16]>>4 != 0xe:
		r.pass(r.itf.own, etherIPv4, head, n)
	case head[0]>>4 == 6 && n >= 40 && head[24] != 0xff:
		r.pass(r.itf.own, etherIPv6, head, n)
	}
}

// pass gives a packet to the lane of its next hop.
func (r *reader) pass(h *hop, typ uint16, head []byte, n int) {
	proto, dst, ok := protocolOf(typ, head)
	switch {
	case !ok:
		r.relay.counts.dropped.Add(1)
	case r.relay.tooWide(r.itf, proto, n):
	case proto == unix.IPPROTO_TCP, proto == unix.IPPROTO_UDP:
		if l := r.relay.laneOf(r.relay.hops.toward(h, typ, head)); l != nil {
			l.deliver(typ, r.take(n))
		}
	case proto == unix.IPPROTO_ICMP && dst.Is4(), proto == unix.IPPROTO_ICMPV6 && dst.Is6():
		if l := r.relay.laneOf(r.relay.hops.toward(h, typ, head)); l != nil {
			l.icmp(r.bytes(n))
		}
	default:
		r.relay.strange(proto, dst, nil)
	}
}

// bytes copies the n bytes of the current frame.
func (r *reader) bytes(n int) []byte {
	b := make([]byte, 0, n)
	for _, v := range r.views {
		b = append(b, v.AsSlice()[:min(v.Size(), n-len(b))]...)
	}
	return b
}

// take gives away the buffers that hold the n bytes of the current frame.
func (r *reader) take(n int) buffer.Buffer {
	var b buffer.Buffer
	for i := 0; n > 0; i++ {
		v := r.views[i]
		r.views[i] = nil
		if n < v.Size() {
			v.CapLength(n)
		}
		n -= v.Size()
		b.Append(v)
	}
	return b
}

// gone reports an error that means the TAP was removed by the inside.
func gone(err error) bool {
	return errors.Is(err, unix.EBADFD) || errors.Is(err, unix.EIO) || errors.Is(err, os.ErrClosed)
}
