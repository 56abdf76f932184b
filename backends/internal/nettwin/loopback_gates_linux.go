package nettwin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/sockdiag"
)

// The sockets that take captured packets are bound to addresses that nobody has
// and that no packet can be sent to from inside: the dummy address of RFC 7600
// and one of the discard prefix of RFC 6666. A transparent socket may be, and
// takes no port of loopback from a daemon that would start inside.
var (
	gateV4 = netip.AddrFrom4([4]byte{192, 0, 0, 8})
	gateV6 = netip.AddrFrom16([16]byte{1, 15: 1})
)

// gate is one kind of captured packet. Each has a socket of its own, by which the
// relay knows how a packet came there.
type gate struct {
	flows nft.Flows
	proto uint8
	six   bool
}

// gates are the transparent sockets in the twin, held by the relay.
type gates map[gate]netip.AddrPort

// open makes the sockets and hands them over; those for diverted packets only in
// the families in which the host diverts any.
func (g gates) open(twin int, to *relay.Process, diverts [2]bool) error {
	for _, six := range []bool{false, true} {
		err := g.openFamily(twin, to, six, six && diverts[1] || !six && diverts[0])
		if six && errors.Is(err, unix.EAFNOSUPPORT) {
			return nil // a kernel without IPv6
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g gates) openFamily(twin int, to *relay.Process, six, diverts bool) error {
	at := gateV4
	if six {
		at = gateV6
	}
	// Before the sockets whose datagrams are answered by it.
	f, err := rawSocket(twin, six)
	if err != nil {
		return err
	}
	if err := handOver(to, relay.LoopAnswers, f); err != nil {
		return err
	}
	for flows, names := range map[nft.Flows]struct{ tcp, udp relay.LoopKind }{
		nft.Direct:     {relay.LoopStreams, relay.LoopDatagrams},
		nft.Translated: {relay.TranslatedStreams, relay.TranslatedDatagrams},
		nft.Diverted:   {relay.DivertedStreams, relay.DivertedDatagrams},
	} {
		if flows == nft.Diverted && !diverts {
			continue
		}
		for proto, kind := range map[uint8]relay.LoopKind{unix.IPPROTO_TCP: names.tcp, unix.IPPROTO_UDP: names.udp} {
			k := gate{flows, proto, six}
			f, port, err := k.listen(twin, at)
			if err != nil {
				return err
			}
			g[k] = netip.AddrPortFrom(at, port)
			if err := handOver(to, kind, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// handOver gives a socket to the relay.
func handOver(to *relay.Process, kind relay.LoopKind, f *os.File) error {
	defer f.Close()
	if _, err := to.Do(relay.Request{Listen: &relay.Listen{Kind: kind}}, f); err != nil {
		return fmt.Errorf("hand over socket for %s: %w", kind, err)
	}
	return nil
}

// own reports whether a socket in the twin is one of the gates.
func (g gates) own(s sockdiag.Socket) bool {
	for k, at := range g {
		if k.proto == s.Proto && at == s.Addr {
			return true
		}
	}
	return false
}

// listen opens a transparent socket in the twin.
func (k gate) listen(twin int, at netip.Addr) (f *os.File, port uint16, err error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = k.setTransparent(int(fd)) })
		if cerr != nil {
			return cerr
		}
		return err
	}}
	lc.SetMultipathTCP(false) // such a stream does not tell its original destination
	err = netns.Do(twin, func() error {
		addr := netip.AddrPortFrom(at, 0).String()
		if k.proto == unix.IPPROTO_UDP {
			c, err := lc.ListenPacket(context.Background(), "udp", addr)
			if err != nil {
				return err
			}
			defer c.Close()
			port = c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
			f, err = c.(*net.UDPConn).File()
			return err
		}
		ln, err := lc.Listen(context.Background(), "tcp", addr)
		if err != nil {
			return err
		}
		defer ln.Close()
		port = ln.Addr().(*net.TCPAddr).AddrPort().Port()
		f, err = ln.(*net.TCPListener).File()
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("listen in twin: %w", err)
	}
	return f, port, nil
}

// datagramBuffer is what may wait for the relay.
const datagramBuffer = 4 << 20

// setTransparent lets a socket have an address that is not the twin's, and a
// datagram socket be told where each datagram was sent.
func (k gate) setTransparent(fd int) error {
	level, transparent, original := unix.SOL_IP, unix.IP_TRANSPARENT, unix.IP_RECVORIGDSTADDR
	if k.six {
		level, transparent, original = unix.SOL_IPV6, unix.IPV6_TRANSPARENT, unix.IPV6_RECVORIGDSTADDR
	}
	if err := unix.SetsockoptInt(fd, level, transparent, 1); err != nil {
		return err
	}
	if k.proto == unix.IPPROTO_TCP {
		return nil
	}
	// One socket takes what on a host would wait in as many as there are services.
	// Root in a container may not ask for more than the default; then it is that.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, datagramBuffer)
	return unix.SetsockoptInt(fd, level, original, 1)
}

// rawSocket is what answers to datagrams are sent by: they come from the address
// that was asked, on which nothing inside may be bound.
func rawSocket(twin int, six bool) (*os.File, error) {
	family := unix.AF_INET
	if six {
		family = unix.AF_INET6
	}
	var f *os.File
	err := netns.Do(twin, func() error {
		// IPPROTO_RAW: it sends whole packets and receives none.
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), "answers")
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open raw socket in twin: %w", err)
	}
	return f, nil
}
