package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// echoSocket sends echo requests to one destination. It is a ping socket where
// the host gives them to the relay's group (net.ipv4.ping_group_range, for IPv6
// too): the kernel keeps their identifiers apart. Elsewhere it is a raw one, for
// which the relay keeps CAP_NET_RAW, with an identifier of its own making and a
// filter that lets no other's answers in.
type echoSocket struct {
	f   *os.File
	rc  syscall.RawConn
	six bool
	raw bool
	id  uint16
	to  unix.Sockaddr
}

// maxUnfiltered is more than a socket queues in the moment before its filter.
const maxUnfiltered = 1 << 16

// openEcho makes the socket of a flow to dst, which may have a zone.
func openEcho(w *route, dst netip.AddrPort) (*echoSocket, error) {
	s := &echoSocket{six: dst.Addr().Is6()}
	family, proto := unix.AF_INET, unix.IPPROTO_ICMP
	if s.six {
		family, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	const flags = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|flags, proto)
	if err == unix.EACCES {
		s.raw = true
		fd, err = unix.Socket(family, unix.SOCK_RAW|flags, proto)
	}
	if err != nil {
		return nil, w.lane.blocked(way.Limit{Kind: way.Protocol, Subject: "echo requests", Reason: "no socket for them: " + err.Error()})
	}
	s.f = os.NewFile(uintptr(fd), "echo")
	if s.rc, err = s.f.SyscallConn(); err == nil {
		err = s.connect(fd, w, dst)
	}
	if err != nil {
		s.f.Close()
		return nil, err
	}
	return s, nil
}

func (s *echoSocket) connect(fd int, w *route, dst netip.AddrPort) error {
	level, options := unix.SOL_IP, []int{unix.IP_RECVERR, unix.IP_RECVTTL}
	if s.six {
		level, options = unix.SOL_IPV6, []int{unix.IPV6_RECVERR, unix.IPV6_RECVHOPLIMIT}
		s.to = &unix.SockaddrInet6{Addr: dst.Addr().As16(), ZoneId: uint32(zone(dst.Addr()))}
	} else {
		s.to = &unix.SockaddrInet4{Addr: dst.Addr().As4()}
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, level, o, 1); err != nil {
			return fmt.Errorf("set option %d of echo socket: %w", o, err)
		}
	}
	if s.raw {
		s.id = uint16(rand.Uint32())
		if err := s.filter(fd); err != nil {
			return err
		}
	}
	if err := w.prepare(fd); err != nil {
		return err
	}
	if err := unix.Connect(fd, s.to); err != nil {
		return err
	}
	if s.raw {
		return nil
	}
	own, err := unix.Getsockname(fd)
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		s.id = uint16(own.Port)
	case *unix.SockaddrInet6:
		s.id = uint16(own.Port)
	}
	return err
}

// confirm is asked before the first reply is passed on: whether the requests went the
// way that was chosen, and what the host's nat made of them. Connection tracking
// knows an echo request by its identifier.
func (s *echoSocket) confirm(w *route) *refusal {
	if no := w.still(); no != nil {
		return no
	}
	f := w.flow
	f.Src = netip.AddrPortFrom(f.Src.Addr(), s.id)
	return (&route{lane: w.lane, flow: f, mark: w.mark}).confirm()
}

// filter lets only echo replies to this socket's requests in. An IPv4 raw socket
// sees the IP header, an IPv6 one does not.
func (s *echoSocket) filter(fd int) error {
	const load, half, match = unix.BPF_LD | unix.BPF_B | unix.BPF_IND, unix.BPF_LD | unix.BPF_H | unix.BPF_IND, bpfEqual
	reply := uint32(echoReply4)
	begin := unix.SockFilter{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH} // X = length of the header at 0
	if s.six {
		reply, begin = echoReply6, unix.SockFilter{Code: unix.BPF_LDX | unix.BPF_W | unix.BPF_IMM}
	}
	f := []unix.SockFilter{
		begin,
		{Code: load},
		{Code: match, K: reply, Jf: 3},
		{Code: half, K: icmpID},
		{Code: match, K: uint32(s.id), Jf: 1},
		{Code: bpfRet, K: 0xffffffff},
		{Code: bpfRet},
	}
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fmt.Errorf("filter raw socket: %w", err)
	}
	// Between its making and its filter the socket heard every ICMP message to the
	// host: answers to others' requests, which are not to be taken for this one's.
	for range maxUnfiltered {
		if _, _, err := unix.Recvfrom(fd, nil, unix.MSG_DONTWAIT); err == unix.EAGAIN {
			return nil
		}
	}
	return fmt.Errorf("filter raw socket: %w", unix.EBUSY)
}

// send sends a request of the twin with its lifetime and its wish to be kept
// whole, so what comes of it is what would come of it on the host.
func (s *echoSocket) send(d *datagram) error {
	m := slices.Clone(d.payload)
	setID(m, s.id)
	level, ttl, tos := unix.SOL_IP, unix.IP_TTL, unix.IP_TOS
	if s.six {
		level, ttl, tos = unix.SOL_IPV6, unix.IPV6_HOPLIMIT, unix.IPV6_TCLASS
	}
	oob := ancillary(ancillary(nil, level, ttl, int32(d.ttl)), level, tos, int32(d.tos))
	if s.six && d.whole {
		// An IPv6 ping socket forgets the socket option of the same name (6.18).
		oob = ancillary(oob, level, unix.IPV6_DONTFRAG, 1)
	}
	var err error
	cerr := s.rc.Control(func(fd uintptr) {
		if !s.six {
			err = setDF(int(fd), d.whole)
		}
		if err == nil {
			err = unix.Sendmsg(int(fd), m, oob, nil, unix.MSG_DONTWAIT)
		}
	})
	if cerr != nil {
		return cerr
	}
	return err
}

// ancillary appends a control message with one number.
func ancillary(b []byte, level, typ int, v int32) []byte {
	at := len(b)
	b = append(b, make([]byte, unix.CmsgSpace(4))...)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[at]))
	h.Level, h.Type = int32(level), int32(typ)
	h.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(b[at+unix.CmsgLen(0):], uint32(v))
	return b
}

// receive waits until a reply or an error comes, or the socket is closed.
func (s *echoSocket) receive(oob []byte) (event, error) {
	for {
		e, err := receiveEvent(s.rc, oob)
		if err != nil {
			return e, err
		}
		if s.raw && !s.six && e.about == nil {
			e.message = e.message[min(int(header.IPv4(e.message).HeaderLength()), len(e.message)):]
		}
		if len(e.message) >= icmpHeader {
			return e, nil
		}
		e.done()
	}
}

// pathMTU connects again first: neither kind of socket keeps the route that it sent
// by, so the MTU would be that of the first connect.
func (s *echoSocket) pathMTU() (int, error) {
	var err error
	if cerr := s.rc.Control(func(fd uintptr) { err = unix.Connect(int(fd), s.to) }); cerr != nil || err != nil {
		return 0, errors.Join(cerr, err)
	}
	return pathMTU(s.rc, s.six)
}

func (s *echoSocket) close() { s.f.Close() }
