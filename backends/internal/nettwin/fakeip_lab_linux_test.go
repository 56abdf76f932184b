package nettwin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
)

// fakeIP is a proxy client with a tun: names get addresses that exist nowhere,
// what is sent to them comes out of the tun, ends in the client's own stack and is
// dialled again to what the name stands for.
type fakeIP struct {
	node *netlab.Node
	tun  *os.File
	s    *stack.Stack

	mu    sync.Mutex
	names map[string]int // serial numbers of the addresses given
	seen  []string       // destinations that came out of the tun
}

// fakeMark is how the proxy's own packets are told from others.
const fakeMark = 0xff

// fakeNet are the networks of the fake addresses; the proxy's name server is the
// second address of each, on the tun.
var fakeNet = [2]netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("fc00::/18")}

// newFakeIP starts one on a node. The link's addresses are the first of each net.
func newFakeIP(t *testing.T, n *netlab.Node) *fakeIP {
	t.Helper()
	p := &fakeIP{node: n, names: map[string]int{}}
	must(t, n.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		p.tun = os.NewFile(uintptr(fd), "tun0")
		req, err := unix.NewIfreq("tun0")
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}))
	must(t, p.serve())
	t.Cleanup(p.end)
	must(t, errors.Join(n.Up("tun0"), n.Address("tun0", "198.18.0.1/30", "fc00::1/126")))
	return p
}

// end ends the proxy; its link goes with it.
func (p *fakeIP) end() {
	if p.s == nil {
		return
	}
	p.s.RemoveNIC(1) // ends its reader, which would hold the link
	p.s.Destroy()
	p.s = nil
	p.tun.Close()
}

func (p *fakeIP) serve() error {
	p.s = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	link, err := fdbased.New(&fdbased.Options{FDs: []int{int(p.tun.Fd())}, MTU: 1500})
	if err != nil {
		return err
	}
	if err := p.s.CreateNIC(1, link); err != nil {
		return errors.New(err.String())
	}
	p.s.SetPromiscuousMode(1, true)
	p.s.SetSpoofing(1, true)
	p.s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}, {Destination: header.IPv6EmptySubnet, NIC: 1}})
	p.s.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(p.s, 0, 64, p.stream).HandlePacket)
	p.s.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(p.s, p.question).HandlePacket)
	return nil
}

// stream dials what an address stands for, or the address itself.
func (p *fakeIP) stream(req *tcp.ForwarderRequest) {
	id := req.ID()
	to, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	p.mu.Lock()
	p.seen = append(p.seen, to.String())
	p.mu.Unlock()
	out, err := p.dial(netip.AddrPortFrom(p.real(to), id.LocalPort))
	if err != nil {
		req.Complete(true)
		return
	}
	defer out.Close()
	var q waiter.Queue
	ep, terr := req.CreateEndpoint(&q)
	if terr != nil {
		return
	}
	req.Complete(false)
	in := gonet.NewTCPConn(&q, ep)
	defer in.Close()
	fmt.Fprintf(in, "via tun %s\n", to)
	go io.Copy(out, in)
	io.Copy(in, out)
}

// dial connects past the tun, by the mark.
func (p *fakeIP) dial(to netip.AddrPort) (c net.Conn, err error) {
	d := net.Dialer{Timeout: 3 * time.Second, Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, fakeMark) })
		return errors.Join(cerr, err)
	}}
	err = p.node.Do(func() (err error) {
		c, err = d.Dial("tcp", to.String())
		return err
	})
	return c, err
}

// real is what a fake address stands for: every name is the lab's server.
func (p *fakeIP) real(a netip.Addr) netip.Addr {
	switch {
	case fakeNet[0].Contains(a):
		return netip.MustParseAddr("203.0.113.80")
	case fakeNet[1].Contains(a):
		return netip.MustParseAddr("2001:db8:80::80")
	}
	return a
}

// question answers name questions that come out of the tun.
func (p *fakeIP) question(req *udp.ForwarderRequest) bool {
	var q waiter.Queue
	ep, terr := req.CreateEndpoint(&q)
	if terr != nil {
		return true
	}
	c := gonet.NewUDPConn(&q, ep)
	go func() {
		defer c.Close()
		c.SetDeadline(time.Now().Add(3 * time.Second))
		b := make([]byte, 512)
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if a := p.resolve(b[:n]); a != nil {
			c.Write(a)
		}
	}()
	return true
}

// listenNames answers name questions on an address of the node too.
func (p *fakeIP) listenNames(t *testing.T, addr string) {
	t.Helper()
	c, err := p.node.ListenPacket("udp", addr)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if a := p.resolve(b[:n]); a != nil {
				c.WriteTo(a, from)
			}
		}
	}()
}

// resolve answers a question of RFC 1035 about one name with a fake address of
// the type that was asked for. Nil: it is none.
func (p *fakeIP) resolve(q []byte) []byte {
	const head = 12
	end := head
	var labels []string
	for end < len(q) && q[end] != 0 {
		next := end + 1 + int(q[end])
		if next >= len(q) {
			return nil
		}
		labels = append(labels, string(q[end+1:next]))
		end = next
	}
	end++
	if end+4 > len(q) {
		return nil
	}
	typ := binary.BigEndian.Uint16(q[end:])
	p.mu.Lock()
	name := strings.Join(labels, ".")
	if p.names[name] == 0 {
		p.names[name] = len(p.names) + 16
	}
	serial := p.names[name]
	p.mu.Unlock()
	net := fakeNet[0]
	if typ == 28 { // AAAA
		net = fakeNet[1]
	}
	addr := net.Addr().AsSlice()
	binary.BigEndian.PutUint16(addr[len(addr)-2:], uint16(serial))
	a := append([]byte{}, q[:end+4]...)
	a[2], a[3] = 0x81, 0x80                                  // an answer, recursive
	copy(a[4:head], []byte{0, 1, 0, 1, 0, 0, 0, 0})          // one question, one answer
	a = append(a, 0xc0, head, byte(typ>>8), byte(typ), 0, 1) // the name above, type, class IN
	a = append(a, 0, 0, 0, 1, 0, byte(len(addr)))            // for a second
	return append(a, addr...)
}
