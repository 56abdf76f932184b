package relay

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ip6tOriginalDst is IP6T_SO_ORIGINAL_DST, which x/sys lacks.
const ip6tOriginalDst = 80

// allows reports whether a host service may be dialled on loopback.
func (a *Allow) allows(to netip.AddrPort) bool {
	return slices.Contains(a.Ports, to.Port()) || slices.Contains(a.Exact, to)
}

// serveLoopback serves one socket of the twin's loopback.
func (r *Relay) serveLoopback(l Listen, f *os.File) error {
	if l.Network == "udp" {
		return r.serveUDP(f, l.To)
	}
	return r.serveTCP(f)
}

// serveTCP accepts what the twin's kernel redirected to a listener there and
// dials the original destination on the host. Root inside can redirect what it
// likes to the listener, so the destination is believed only as far as the
// allow-list goes.
func (r *Relay) serveTCP(f *os.File) error {
	ln, err := net.FileListener(f)
	f.Close()
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go r.loopTCP(c.(*net.TCPConn))
		}
	}()
	return nil
}

func (r *Relay) loopTCP(in *net.TCPConn) {
	to, err := originalDst(in)
	if err != nil || r.cut || !r.allow.Load().allows(to) || !r.local(to.Addr()) || r.streams.Load() >= maxStreams {
		r.counts.fenced.Add(1)
		reset(in)
		return
	}
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: -1}
	c, err := d.DialContext(context.Background(), "tcp", to.String())
	if err != nil {
		r.counts.refused.Add(1)
		reset(in)
		return
	}
	r.counts.flows.Add(1)
	r.streams.Add(1)
	defer r.streams.Add(-1)
	pipe(in, c.(*net.TCPConn))
}

// originalDst is where a redirected connection wanted to go.
func originalDst(c *net.TCPConn) (netip.AddrPort, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	level, opt := unix.SOL_IP, unix.SO_ORIGINAL_DST
	if c.LocalAddr().(*net.TCPAddr).IP.To4() == nil {
		level, opt = unix.SOL_IPV6, ip6tOriginalDst
	}
	var sa unix.RawSockaddrInet6 // the larger of the two
	size := uint32(unsafe.Sizeof(sa))
	var errno unix.Errno
	err = rc.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), uintptr(opt),
			uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:])
	if sa.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&sa))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port), nil
	}
	return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), port), nil
}

// pipe copies both ways until both ended: an end of data as such, an error as a
// reset. Between two sockets the kernel moves the bytes (splice).
func pipe(a, b *net.TCPConn) {
	var wg sync.WaitGroup
	half := func(dst, src *net.TCPConn) {
		defer wg.Done()
		if _, err := io.Copy(dst, src); err != nil {
			reset(dst)
			reset(src)
			return
		}
		dst.CloseWrite()
	}
	wg.Add(2)
	go half(a, b)
	half(b, a)
	wg.Wait()
	a.Close()
	b.Close()
}

// serveUDP carries what arrives at a socket in the twin to one host service.
func (r *Relay) serveUDP(f *os.File, to netip.AddrPort) error {
	pc, err := net.FilePacketConn(f)
	f.Close()
	if err != nil {
		return err
	}
	in := pc.(*net.UDPConn)
	s := &loopUDP{relay: r, in: in, to: to, flows: map[netip.AddrPort]*net.UDPConn{}}
	go s.run()
	return nil
}

// loopUDP is one relayed datagram service.
type loopUDP struct {
	relay *Relay
	in    *net.UDPConn
	to    netip.AddrPort
	mu    sync.Mutex
	flows map[netip.AddrPort]*net.UDPConn
}

// maxLoopFlows bounds the clients of one relayed datagram service.
const maxLoopFlows = 1024

func (s *loopUDP) run() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := s.in.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		if s.relay.cut {
			continue
		}
		if out := s.flow(from); out != nil {
			out.Write(buf[:n]) // a refusal comes back as an error of the next read
		}
	}
}

func (s *loopUDP) flow(from netip.AddrPort) *net.UDPConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if out := s.flows[from]; out != nil {
		return out
	}
	if len(s.flows) >= maxLoopFlows {
		s.relay.counts.dropped.Add(1)
		return nil
	}
	out, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.to))
	if err != nil {
		s.relay.counts.refused.Add(1)
		return nil
	}
	s.flows[from] = out
	s.relay.counts.flows.Add(1)
	go s.answer(from, out)
	return out
}

func (s *loopUDP) answer(from netip.AddrPort, out *net.UDPConn) {
	defer func() {
		s.mu.Lock()
		delete(s.flows, from)
		s.mu.Unlock()
		out.Close()
	}()
	buf := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(buf)
	for {
		out.SetReadDeadline(time.Now().Add(udpIdle))
		n, err := out.Read(buf[:])
		if err != nil {
			return
		}
		s.in.WriteToUDPAddrPort(buf[:n], from)
	}
}
