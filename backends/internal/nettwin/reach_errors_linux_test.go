package nettwin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// ending is what an application is told in the end, in the words of the kernel.
func ending(err error) string {
	var e unix.Errno
	var timeout net.Error
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return "no error"
	case errors.As(err, &e):
		return e.Error()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return err.Error()
}

// obstacles makes places of the outside that answer in all the ways there are. The
// last byte of an address says which.
func (l *testLab) obstacles(t *testing.T) {
	t.Helper()
	for _, s := range []string{"ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"} {
		must(t, l.gw1.Sysctl(s, "0"))
	}
	var rules strings.Builder
	for last, what := range map[string]string{
		"66": "drop", "67": "reject with icmpx host-unreachable", "68": "reject with icmpx no-route", "69": "reject with icmpx admin-prohibited",
	} {
		fmt.Fprintf(&rules, "ip daddr 203.0.113.%s %s; ip6 daddr 2001:db8:80::%s %s; ", last, what, last, what)
	}
	_, err := l.gw1.Run(t.Context(), "nft", "table inet f { chain through { type filter hook forward priority 0; "+rules.String()+"}; }")
	must(t, err)
}

// TestErrorTable runs one client on the host and in the twin. Whatever happens to
// it, it is told the same in both.
func TestErrorTable(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	l.obstacles(t)
	ln, err := l.server.Listen("tcp", ":90")
	must(t, err)
	defer ln.Close()
	l.mirror(t, Options{})
	connects := func(network string, within time.Duration) func(t *testing.T, n *netlab.Node, host string) string {
		return func(t *testing.T, n *netlab.Node, host string) string {
			return attempt(t, n, network, host, within)
		}
	}
	const soon, never = 5 * time.Second, 500 * time.Millisecond
	for _, c := range []struct {
		name   string
		v4, v6 string // address
		client func(t *testing.T, n *netlab.Node, addr string) string
		want   [2]string // where it is the same on every kernel
	}{
		{"nobody listens", "203.0.113.80:81", "[2001:db8:80::80]:81", connects("tcp", soon), [2]string{"connection refused", "connection refused"}},
		{"a router knows no such host", "203.0.113.67:80", "[2001:db8:80::67]:80", connects("tcp", soon), [2]string{"no route to host", "no route to host"}},
		{"a router has no route", "203.0.113.68:80", "[2001:db8:80::68]:80", connects("tcp", soon), [2]string{"network is unreachable", "network is unreachable"}},
		{"a router forbids it", "203.0.113.69:80", "[2001:db8:80::69]:80", connects("tcp", soon), [2]string{"no route to host", "permission denied"}},
		{"silence", "203.0.113.66:80", "[2001:db8:80::66]:80", connects("tcp", never), [2]string{"timeout", "timeout"}},
		{"nobody listens for datagrams", "203.0.113.80:82", "[2001:db8:80::80]:82", connects("udp", soon), [2]string{"connection refused", "connection refused"}},
		{"a datagram to a host that a router does not know", "203.0.113.67:80", "[2001:db8:80::67]:80", connects("udp", never), [2]string{}},
		{"a datagram that a router forbids", "203.0.113.69:80", "[2001:db8:80::69]:80", connects("udp", never), [2]string{}},
		{"a datagram into silence", "203.0.113.66:80", "[2001:db8:80::66]:80", connects("udp", never), [2]string{"timeout", "timeout"}},
		{"the client ends its half and the server sends 5 MB", "203.0.113.80:90", "[2001:db8:80::80]:90", halfClosed(ln), [2]string{"no error", "no error"}},
		{"the server resets", "203.0.113.80:90", "[2001:db8:80::80]:90", serverResets(ln), [2]string{"connection reset by peer", "connection reset by peer"}},
		{"the client resets, as the server sees it", "203.0.113.80:90", "[2001:db8:80::80]:90", clientResets(ln), [2]string{"connection reset by peer", "connection reset by peer"}},
	} {
		for i, addr := range []string{c.v4, c.v6} {
			t.Run(fmt.Sprintf("%s, v%d", c.name, 4+2*i), func(t *testing.T) {
				host, twin := c.client(t, l.host, addr), c.client(t, l.inside, addr)
				if host != twin {
					t.Errorf("the host is told %q, the twin %q", host, twin)
				}
				if c.want[i] != "" && host != c.want[i] {
					t.Errorf("the host is told %q, want %q", host, c.want[i])
				}
			})
		}
	}
}

// attempt connects, or sends a datagram, and waits for what comes of it.
func attempt(t *testing.T, n *netlab.Node, network, addr string, limit time.Duration) string {
	t.Helper()
	c, err := n.Dial(within(t, limit), network, addr)
	if err != nil {
		return ending(err)
	}
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(limit)))
	if network == "udp" {
		_, err := io.WriteString(c, "x")
		must(t, err)
	}
	_, err = c.Read(make([]byte, 1))
	return ending(err)
}

// halfClosed is a client that has said all and still listens.
func halfClosed(ln net.Listener) func(*testing.T, *netlab.Node, string) string {
	return func(t *testing.T, n *netlab.Node, addr string) string {
		blob := bytes.Repeat([]byte("netsandbox"), 500_000)
		done := accept(t, ln, func(c *net.TCPConn) error {
			defer c.Close()
			if _, err := io.ReadAll(c); err != nil {
				return err
			}
			_, err := c.Write(blob)
			return err
		})
		c := conversation(t, n, addr)
		must(t, c.CloseWrite())
		got, err := io.ReadAll(c)
		if err == nil && !bytes.Equal(got, blob) {
			err = fmt.Errorf("%d bytes came", len(got))
		}
		return ending(errors.Join(err, <-done))
	}
}

func serverResets(ln net.Listener) func(*testing.T, *netlab.Node, string) string {
	return func(t *testing.T, n *netlab.Node, addr string) string {
		done := accept(t, ln, func(c *net.TCPConn) error {
			_, err := c.Read(make([]byte, 1))
			return errors.Join(err, c.SetLinger(0), c.Close())
		})
		c := conversation(t, n, addr)
		_, err := io.ReadAll(c)
		must(t, <-done)
		return ending(err)
	}
}

func clientResets(ln net.Listener) func(*testing.T, *netlab.Node, string) string {
	return func(t *testing.T, n *netlab.Node, addr string) string {
		done := accept(t, ln, func(c *net.TCPConn) error {
			defer c.Close()
			_, err := io.ReadAll(c)
			return err
		})
		c := conversation(t, n, addr)
		must(t, c.SetLinger(0))
		must(t, c.Close())
		return ending(<-done)
	}
}

// conversation is a connection on which a word was said.
func conversation(t *testing.T, n *netlab.Node, addr string) *net.TCPConn {
	t.Helper()
	c, err := n.Dial(within(t, 5*time.Second), "tcp", addr)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(c, "x")
	must(t, err)
	return c.(*net.TCPConn)
}
