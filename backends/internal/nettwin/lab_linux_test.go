package nettwin

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// testLab is a host with two uplinks, a router behind each, and a server that
// both reach:
//
//	host eth0 192.0.2.2/24    2001:db8:1::2/64 -- gw1 .1 ::1 --+
//	     eth1 198.51.100.2/24 2001:db8:2::2/64 -- gw2 .1 ::1 --+-- server 203.0.113.80 2001:db8:80::80
type testLab struct {
	*netlab.Lab
	host, gw1, gw2, server, inside *netlab.Node
	twin                           *Twin
}

func newLab(t testing.TB, reqs ...nstest.Req) *testLab {
	t.Helper()
	nstest.Require(t, append([]nstest.Req{nstest.Root, nstest.NetNS, nstest.TUN}, reqs...)...)
	l := &testLab{Lab: netlab.New()}
	t.Cleanup(func() { must(t, l.Close()) })
	for _, n := range []struct {
		name string
		to   **netlab.Node
	}{{"host", &l.host}, {"gw1", &l.gw1}, {"gw2", &l.gw2}, {"server", &l.server}} {
		var err error
		*n.to, err = l.Node(n.name)
		must(t, err)
	}
	must(t, errors.Join(
		l.Wire(l.host, "eth0", l.gw1, "in"), l.Wire(l.host, "eth1", l.gw2, "in"),
		l.Wire(l.gw1, "out", l.server, "one"), l.Wire(l.gw2, "out", l.server, "two"),
		l.host.MTU("eth1", 1420), l.gw2.MTU("in", 1420),
		l.host.Address("eth0", "192.0.2.2/24", "2001:db8:1::2/64"),
		l.host.Address("eth1", "198.51.100.2/24", "2001:db8:2::2/64"),
		l.gw1.Address("in", "192.0.2.1/24", "2001:db8:1::1/64"), l.gw1.Address("out", "203.0.113.1/24", "2001:db8:80::1/64"),
		l.gw2.Address("in", "198.51.100.1/24", "2001:db8:2::1/64"), l.gw2.Address("out", "203.0.114.1/24", "2001:db8:81::1/64"),
		l.server.Address("one", "203.0.113.80/24", "2001:db8:80::80/64"), l.server.Address("two", "203.0.114.80/24", "2001:db8:81::80/64"),
		l.gw1.Forward(), l.gw2.Forward(),
		l.host.Route("0.0.0.0/0", "192.0.2.1"), l.host.Route("::/0", "2001:db8:1::1"),
		l.server.Route("192.0.2.0/24", "203.0.113.1"), l.server.Route("2001:db8:1::/64", "2001:db8:80::1"),
		l.server.Route("198.51.100.0/24", "203.0.114.1"), l.server.Route("2001:db8:2::/64", "2001:db8:81::1"),
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
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String()+"\n")
				io.Copy(c, c)
			}()
		}
	}()
}

// echoUDP answers every datagram with the address it came from and the datagram.
func echoUDP(t *testing.T, n *netlab.Node, addr string) {
	t.Helper()
	c, err := n.ListenPacket("udp", addr)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(append([]byte(from.(*net.UDPAddr).IP.String()+"\n"), b[:n]...), from)
		}
	}()
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
