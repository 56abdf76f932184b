package nettwin

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// testLab is a host with two uplinks, one router behind the one and two behind the
// other, and a server that all reach, each by a link of its own. Nobody is .77.
//
//	host eth0 192.0.2.2/24    2001:db8:1::2/64 -- lan -+- gw1 .1   ::1  -- one   -+
//	                                                   +- gw3 .254 ::fe -- three -+- server 203.0.113.80
//	     eth1 198.51.100.2/24 2001:db8:2::2/64 --------- gw2 .1   ::1  -- two   -+         2001:db8:80::80
type testLab struct {
	*netlab.Lab
	host, lan, gw1, gw2, gw3, server, inside *netlab.Node
	twin                                     *Twin
}

func newLab(t testing.TB, reqs ...nstest.Req) *testLab {
	t.Helper()
	nstest.Require(t, append([]nstest.Req{nstest.Root, nstest.NetNS, nstest.TUN}, reqs...)...)
	l := &testLab{Lab: netlab.New()}
	t.Cleanup(func() { must(t, l.Close()) })
	for _, n := range []struct {
		name string
		to   **netlab.Node
	}{{"host", &l.host}, {"lan", &l.lan}, {"gw1", &l.gw1}, {"gw2", &l.gw2}, {"gw3", &l.gw3}, {"server", &l.server}} {
		var err error
		*n.to, err = l.Node(n.name)
		must(t, err)
	}
	must(t, errors.Join(
		l.Wire(l.host, "eth0", l.lan, "host"), l.Wire(l.gw1, "in", l.lan, "gw1"), l.Wire(l.gw3, "in", l.lan, "gw3"),
		l.lan.Bridge("switch", "host", "gw1", "gw3"), l.Wire(l.host, "eth1", l.gw2, "in"),
		l.Wire(l.gw1, "out", l.server, "one"), l.Wire(l.gw2, "out", l.server, "two"), l.Wire(l.gw3, "out", l.server, "three"),
		l.host.MTU("eth1", 1420), l.gw2.MTU("in", 1420),
		l.host.Address("eth0", "192.0.2.2/24", "2001:db8:1::2/64"),
		l.host.Address("eth1", "198.51.100.2/24", "2001:db8:2::2/64"),
		l.gw1.Address("in", "192.0.2.1/24", "2001:db8:1::1/64"), l.gw1.Address("out", "203.0.113.1/24", "2001:db8:80::1/64"),
		l.gw2.Address("in", "198.51.100.1/24", "2001:db8:2::1/64"), l.gw2.Address("out", "203.0.114.1/24", "2001:db8:81::1/64"),
		l.gw3.Address("in", "192.0.2.254/24", "2001:db8:1::fe/64"), l.gw3.Address("out", "203.0.115.1/24", "2001:db8:82::1/64"),
		l.server.Address("one", "203.0.113.80/24", "2001:db8:80::80/64"), l.server.Address("two", "203.0.114.80/24", "2001:db8:81::80/64"),
		l.server.Address("three", "203.0.115.80/24", "2001:db8:82::80/64"),
		l.gw1.Forward(), l.gw2.Forward(), l.gw3.Forward(),
		l.host.Route("0.0.0.0/0", "192.0.2.1"), l.host.Route("::/0", "2001:db8:1::1"),
		l.gw2.Route("203.0.113.0/24", "203.0.114.80"), l.gw2.Route("2001:db8:80::/64", "2001:db8:81::80"),
		l.gw3.Route("203.0.113.0/24", "203.0.115.80"), l.gw3.Route("2001:db8:80::/64", "2001:db8:82::80"),
		l.server.Route("192.0.2.0/24", "203.0.113.1"), l.server.Route("2001:db8:1::/64", "2001:db8:80::1"),
		l.server.Route("198.51.100.0/24", "203.0.114.1"), l.server.Route("2001:db8:2::/64", "2001:db8:81::1"),
		// For sockets that answer by the link they were asked on.
		l.server.RouteMetric("0.0.0.0/0", "203.0.113.1", 2001), l.server.RouteMetric("::/0", "2001:db8:80::1", 2001),
		l.server.RouteMetric("0.0.0.0/0", "203.0.114.1", 2002), l.server.RouteMetric("::/0", "2001:db8:81::1", 2002),
		l.server.RouteMetric("0.0.0.0/0", "203.0.115.1", 2003), l.server.RouteMetric("::/0", "2001:db8:82::1", 2003),
	))
	for _, s := range []string{"all", "default", "eth0", "eth1"} {
		must(t, l.host.Sysctl("ipv4/conf/"+s+"/rp_filter", "1"))
	}
	return l
}

// mirror makes the twin of the lab's host.
func (l *testLab) mirror(t testing.TB, opt Options) {
	t.Helper()
	ns, err := l.Node("inside")
	must(t, err)
	l.inside = ns
	if opt.Stderr == nil {
		opt.Stderr = testWriter{t}
	}
	must(t, l.host.Do(func() (err error) {
		l.twin, err = Mirror(t.Context(), int(ns.NS().Fd()), opt)
		return err
	}))
	twin := l.twin
	t.Cleanup(func() { must(t, twin.Close()) })
}

// lanes makes the host go the ways that the twin chooses, for as long as the test
// runs.
func (l *testLab) lanes(t testing.TB) *lanes.Lanes {
	t.Helper()
	keeper, err := lanes.Open(l.host.NS(), lanes.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, keeper.Close()) })
	return keeper
}

// onHost runs a command line on the lab's host.
func (l *testLab) onHost(t testing.TB, line string) string {
	t.Helper()
	out, err := l.host.Run(t.Context(), fields(line)...)
	must(t, err)
	return out
}

func fields(line string) []string { return strings.Fields(line) }

// macOf is the link address of a node's link.
func (l *testLab) macOf(t testing.TB, n *netlab.Node, link string) string {
	t.Helper()
	have, err := observe(int(n.NS().Fd()))
	must(t, err)
	return net.HardwareAddr(have.mac(have.byName(link))).String()
}

// echo answers every connection with the address it came from, then with what
// it is sent.
func echo(t *testing.T, n *netlab.Node, network, addr string) {
	t.Helper()
	ln, err := n.Listen(network, addr)
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go answer(ln, func(c net.Conn) {
		io.WriteString(c, host(c.RemoteAddr())+"\n")
		io.Copy(c, c)
	})
}

// echoUDP answers every datagram with the address it came from and the datagram.
func echoUDP(t *testing.T, n *netlab.Node, addr string) {
	t.Helper()
	c, err := n.ListenPacket("udp", addr)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	go answerUDP(c, func(from net.Addr, b []byte) string { return host(from) + "\n" + string(b) })
}

// paths answers each connection and datagram with the link of the server that it
// came by ("one" is behind gw1, and so on) and the address that it came from.
func (l *testLab) paths(t *testing.T, port string) {
	t.Helper()
	for _, link := range []string{"one", "two", "three"} {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), link) }), err)
		}}
		must(t, l.server.Do(func() error {
			ln, err := lc.Listen(t.Context(), "tcp", ":"+port)
			if err != nil {
				return err
			}
			t.Cleanup(func() { ln.Close() })
			go answer(ln, func(c net.Conn) { io.WriteString(c, link+" "+host(c.RemoteAddr())) })
			pc, err := lc.ListenPacket(t.Context(), "udp", ":"+port)
			if err != nil {
				return err
			}
			t.Cleanup(func() { pc.Close() })
			go answerUDP(pc, func(from net.Addr, _ []byte) string { return link + " " + host(from) })
			return nil
		}))
	}
}

// path asks [testLab.paths] from a node: "one 192.0.2.2".
func path(t *testing.T, n *netlab.Node, network, addr string) (string, error) {
	t.Helper()
	return pathWithin(t, n, network, addr, 3*time.Second)
}

func pathWithin(t *testing.T, n *netlab.Node, network, addr string, limit time.Duration) (string, error) {
	t.Helper()
	c, err := n.Dial(within(t, limit), network, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return pathOf(c, network, limit)
}

func pathOf(c net.Conn, network string, limit time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if network == "udp" {
		if _, err := c.Write([]byte{0}); err != nil {
			return "", err
		}
	}
	b := make([]byte, 128)
	got, err := c.Read(b)
	return string(b[:got]), err
}

func host(a net.Addr) string {
	h, _, _ := net.SplitHostPort(a.String())
	return h
}

func answer(ln net.Listener, f func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			f(c)
		}()
	}
}

// answerUDP answers from the address that was asked. The kernel says which that
// was, and takes its own words back to choose the source.
func answerUDP(pc net.PacketConn, f func(net.Addr, []byte) string) {
	c := pc.(*net.UDPConn)
	if rc, err := c.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		})
	}
	b, oob := make([]byte, 64<<10), make([]byte, 256)
	for {
		n, on, _, from, err := c.ReadMsgUDPAddrPort(b, oob)
		if err != nil {
			return
		}
		c.WriteMsgUDPAddrPort([]byte(f(net.UDPAddrFromAddrPort(from), b[:n])), oob[:on], from)
	}
}

// seenAs connects from inside and returns the address under which the echo
// server saw the client.
func (l *testLab) seenAs(t *testing.T, network, addr string) string {
	t.Helper()
	c, err := l.inside.Dial(within(t, 5*time.Second), network, addr)
	must(t, err)
	defer c.Close()
	b := make([]byte, 64)
	c.SetDeadline(time.Now().Add(5 * time.Second))
	n, err := c.Read(b)
	must(t, err)
	return string(b[:n-1])
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testWriter passes a process's words to the test's log.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}
