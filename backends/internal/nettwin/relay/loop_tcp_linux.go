package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// ip6tOriginalDst is IP6T_SO_ORIGINAL_DST, which x/sys lacks.
const ip6tOriginalDst = 80

// serveStreams accepts what the twin's kernel captured and dials the same
// destination on the host, as a process of the host would: its nat and its
// routing lead the stream to the service or to the proxy that a process there
// would get.
func (r *Relay) serveStreams(f *os.File, kind LoopKind) error {
	ln, err := net.FileListener(f)
	f.Close()
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil: // no descriptor left, for one
				time.Sleep(acceptPause)
			case r.streams.Add(1) > maxStreams:
				r.streams.Add(-1)
				r.limit(&way.Limit{Kind: way.Load, Subject: "streams", Reason: fmt.Sprintf("more than %d at once", maxStreams)})
				reset(c.(*net.TCPConn))
			default:
				go r.stream(c.(*net.TCPConn), kind)
			}
		}
	}()
	return nil
}

// acceptPause is the wait after an error of accept.
const acceptPause = 5 * time.Millisecond

func (r *Relay) stream(in *net.TCPConn, kind LoopKind) {
	defer r.streams.Add(-1)
	out, err := r.dialStream(in, kind)
	if err != nil {
		r.turnAway(err)
		reset(in)
		return
	}
	r.counts.flows.Add(1)
	pipe(in, out)
}

func (r *Relay) dialStream(in *net.TCPConn, kind LoopKind) (*net.TCPConn, error) {
	p := passage{kind: kind, proto: unix.IPPROTO_TCP, client: addrOf(in.RemoteAddr()), at: addrOf(in.LocalAddr())}
	p.to = p.at
	if kind == TranslatedStreams {
		var err error
		if p.to, err = originalDst(in); err != nil {
			return nil, err
		}
	}
	if err := r.admit(&p); err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: -1}
	c, err := d.DialContext(context.Background(), "tcp", p.to.String())
	if err != nil {
		return nil, p.unanswered(err)
	}
	out := c.(*net.TCPConn)
	if err := r.confirm(p, addrOf(out.LocalAddr())); err != nil {
		reset(out)
		return nil, err
	}
	return out, nil
}

// addrOf is the address of one end of a socket.
func addrOf(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// originalDst is where a stream was sent before nat changed its destination.
func originalDst(c *net.TCPConn) (to netip.AddrPort, err error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	six := addrOf(c.LocalAddr()).Addr().Is6()
	cerr := rc.Control(func(fd uintptr) {
		if six {
			to, err = originalDst6(int(fd))
		} else {
			to, err = originalDst4(int(fd))
		}
	})
	return to, errors.Join(cerr, err)
}

// The option's value is a sockaddr_in; of the structures that x/sys reads options
// into, these two are large enough, and the second begins with a sockaddr_in6.

func originalDst4(fd int) (netip.AddrPort, error) {
	v, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	sa := v.Multiaddr[:]
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), binary.BigEndian.Uint16(sa[2:])), nil
}

func originalDst6(fd int) (netip.AddrPort, error) {
	v, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, ip6tOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, v.Addr.Port))
	return netip.AddrPortFrom(netip.AddrFrom16(v.Addr.Addr), port), nil
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
