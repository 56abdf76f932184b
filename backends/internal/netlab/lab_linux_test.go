package netlab

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// TestGatewayAndAPI builds the smallest network worth the name: a host, its
// gateway, a server behind it.
func TestGatewayAndAPI(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.NetNS)
	l := New()
	defer l.Close()
	host, err := l.Node("host")
	must(t, err)
	gateway, err := l.Node("gateway")
	must(t, err)
	api, err := l.Node("api")
	must(t, err)
	must(t, errors.Join(
		l.Wire(host, "eth0", gateway, "lan"), l.Wire(gateway, "wan", api, "eth0"),
		host.Address("eth0", "192.0.2.2/24", "2001:db8:1::2/64"), gateway.Address("lan", "192.0.2.1/24", "2001:db8:1::1/64"),
		gateway.Address("wan", "203.0.113.1/24", "2001:db8:2::1/64"), api.Address("eth0", "203.0.113.80/24", "2001:db8:2::80/64"),
		host.Route("0.0.0.0/0", "192.0.2.1"), host.Route("::/0", "2001:db8:1::1"),
		api.Route("0.0.0.0/0", "203.0.113.1"), api.Route("::/0", "2001:db8:2::1"),
	))
	ln, err := api.Listen("tcp", ":80")
	must(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RemoteAddr) }), ReadHeaderTimeout: time.Second}
	go s.Serve(ln)
	defer s.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if c, err := host.Dial(ctx, "tcp", "203.0.113.80:80"); err == nil {
		c.Close()
		t.Error("the gateway forwards before it was told to")
	}
	must(t, gateway.Forward())
	for _, addr := range []string{"203.0.113.80:80", "[2001:db8:2::80]:80"} {
		c, err := host.Dial(t.Context(), "tcp", addr)
		must(t, err)
		c.Close()
	}
	if _, err := host.Run(t.Context(), "false"); err == nil {
		t.Error("a program that fails is no error")
	}
}

// TestSwitchAndMetrics joins three machines on one segment and prefers one of two
// gateways.
func TestSwitchAndMetrics(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.NetNS)
	l := New()
	defer l.Close()
	nodes := map[string]*Node{}
	for _, name := range []string{"switch", "host", "a", "b"} {
		n, err := l.Node(name)
		must(t, err)
		nodes[name] = n
	}
	for name, addr := range map[string]string{"host": "192.0.2.2/24", "a": "192.0.2.1/24", "b": "192.0.2.254/24"} {
		must(t, errors.Join(l.Wire(nodes[name], "eth0", nodes["switch"], name), nodes[name].Address("eth0", addr)))
	}
	must(t, nodes["switch"].Bridge("br0", "host", "a", "b"))
	for _, gw := range []string{"a", "b"} {
		must(t, nodes[gw].Address("lo", "203.0.113.1/32"))
		ln, err := nodes[gw].Listen("tcp", ":80")
		must(t, err)
		defer ln.Close()
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, gw)
				c.Close()
			}
		}()
	}
	host := nodes["host"]
	must(t, errors.Join(host.RouteMetric("203.0.113.0/24", "192.0.2.1", 20), host.RouteMetric("203.0.113.0/24", "192.0.2.254", 10)))
	c, err := host.Dial(t.Context(), "tcp", "203.0.113.1:80")
	must(t, err)
	defer c.Close()
	if got, err := io.ReadAll(c); string(got) != "b" || err != nil {
		t.Errorf("by the preferred gateway: %q, %v", got, err)
	}
	if err := nodes["switch"].Bridge("br1", "nothing"); err == nil {
		t.Error("a port that does not exist was joined")
	}
}

// TestCloseTakesAll uses a node after the lab it was of.
func TestCloseTakesAll(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.NetNS)
	l := New()
	n, err := l.Node("alone")
	must(t, err)
	must(t, l.Close())
	if err := n.Do(func() error { return nil }); !errors.Is(err, unix.EBADF) {
		t.Errorf("a node of a closed lab: got %v, want EBADF", err)
	}
	if _, err := l.Node("again"); err != nil {
		t.Errorf("a closed lab is empty, not broken: %v", err)
	}
	must(t, l.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
