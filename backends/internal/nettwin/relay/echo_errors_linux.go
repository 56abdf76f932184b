package relay

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// oobSize is room for what the kernel says beside a message: an error, its sender,
// the time to live.
const oobSize = 256

// event is what came to an outer socket: a message, or an ICMP error and the head
// of what it is about.
type event struct {
	message []byte // in buf
	ttl     byte
	about   *unix.SockExtendedErr
	from    netip.Addr // who sent the error

	buf *[64 << 10]byte
}

// done gives the buffer back.
func (e *event) done() {
	buffers.Put(e.buf)
	e.buf = nil
}

// receiveEvent waits for the next. The kernel queues errors apart (IP_RECVERR), and
// wakes a reader for both; an error is also the result of the next call on the
// socket, which says less, and may come after the entry that it is about was read. No
// buffer is held while it waits.
func receiveEvent(rc syscall.RawConn, oob []byte) (e event, err error) {
	var fail error
	err = rc.Read(func(fd uintptr) bool {
		e = event{buf: buffers.Get().(*[64 << 10]byte)}
		for range maxStale {
			for _, queue := range []int{0, unix.MSG_ERRQUEUE} {
				n, on, _, _, err := unix.Recvmsg(int(fd), e.buf[:], oob, queue|unix.MSG_DONTWAIT)
				if err == nil {
					e.read(n, oob[:on])
					return true
				}
				if queue == 0 {
					fail = err
				}
			}
			if fail == unix.EAGAIN {
				break
			}
		}
		e.done()
		return fail != unix.EAGAIN
	})
	if err == nil && e.buf == nil {
		err = fail
	}
	return e, err
}

// maxStale bounds the errors in a row of which nothing is queued.
const maxStale = 16

// read takes in one message with what the kernel says beside it.
func (e *event) read(n int, oob []byte) {
	e.message, e.ttl = e.buf[:n], 64
	for len(oob) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return
		}
		oob = rest
		switch {
		case len(data) >= 4 && (h.Level == unix.SOL_IP && h.Type == unix.IP_TTL || h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_HOPLIMIT):
			e.ttl = byte(binary.NativeEndian.Uint32(data))
		case len(data) >= 16 && (h.Level == unix.SOL_IP && h.Type == unix.IP_RECVERR || h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_RECVERR):
			about := *(*unix.SockExtendedErr)(unsafe.Pointer(&data[0]))
			e.about, e.from = &about, sender(data[16:])
		}
	}
}

// sender reads the struct sockaddr behind a struct sock_extended_err.
func sender(b []byte) (a netip.Addr) {
	switch {
	case len(b) >= unix.SizeofSockaddrInet4 && binary.NativeEndian.Uint16(b) == unix.AF_INET:
		a = netip.AddrFrom4([4]byte(b[4:8]))
	case len(b) >= 24 && binary.NativeEndian.Uint16(b) == unix.AF_INET6:
		a = netip.AddrFrom16([16]byte(b[8:24]))
	}
	return a
}

// passOn tells the twin what a router or the destination complained of, and who did:
// that is what tracing a path is about.
func (l *lane) passOn(quote []byte, e *event) {
	if o := e.about.Origin; o != unix.SO_EE_ORIGIN_ICMP && o != unix.SO_EE_ORIGIN_ICMP6 {
		return // the host's own kernel, to the call that failed
	}
	c := complaint{from: e.from, typ: e.about.Type, code: e.about.Code, word: e.about.Info}
	// The host complains itself about a neighbour that does not answer. In the twin
	// its address is the twin's own, and from there nothing is believed.
	if l.relay.host.local(e.from) {
		c.from = netip.Addr{}
	}
	if quote[0]>>4 == 4 && c.typ == parameterProblem4 {
		c.word <<= 24
	}
	l.complain(quote, c)
}

// hear makes an outer socket keep the errors that it meets.
func hear(fd int, six bool) error {
	if six {
		return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_RECVERR, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_RECVERR, 1)
}

// headers is the size of the headers of a datagram.
func headers(six bool) int {
	if six {
		return header.IPv6MinimumSize + header.UDPMinimumSize
	}
	return header.IPv4MinimumSize + header.UDPMinimumSize
}
