package linuxns

import (
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// outside moves the test to a host with one uplink, behind which a server
// listens on 203.0.113.80 and 2001:db8:80::80, port 80.
func outside(t *testing.T) {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.NetNS)
	l := netlab.New()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	host, err := l.Node("host")
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Node("server")
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		l.Wire(host, "eth0", server, "in"),
		host.Address("eth0", "192.0.2.2/24", "2001:db8:1::2/64"),
		server.Address("in", "192.0.2.1/24", "2001:db8:1::1/64", "203.0.113.80/32", "2001:db8:80::80/128"),
		host.Route("0.0.0.0/0", "192.0.2.1"), host.Route("::/0", "2001:db8:1::1"),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"203.0.113.80:80", "[2001:db8:80::80]:80"} {
		ln, err := server.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
	}
	// The holder is started from this thread and inherits its network.
	runtime.LockOSThread()
	if err := unix.Setns(int(host.NS().Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTheCutWorldIsCut(t *testing.T) {
	outside(t)
	e := newEnv(t)
	for _, where := range worlds {
		for _, p := range []backends.Probe{
			{Dial: "203.0.113.80:80"},
			{Dial: "[2001:db8:80::80]:80"},
			{Dial: "203.0.113.80:80", Interface: "eth0"},
			{Dial: "203.0.113.80:80", Interface: "eth0", UID: 1000, GID: 1000},
		} {
			p.Timeout = time.Second
			if got := e.canary(where, p); got.OK() != (where != backends.InCut) {
				t.Errorf("%s by %q in %s: %+v", p.Dial, p.Interface, where, got)
			}
		}
		if got := e.canary(where, shell("true")); !got.OK() {
			t.Errorf("true in %s: %+v", where, got)
		}
	}
}

// What the view does to its network shows in the candidate, and there only.
// A service of the host's loopback that was gone for a moment, as one that is
// restarted, is answered in the next probe, however seldom the twin asks by itself.
func TestServiceThatComesBackIsAnswered(t *testing.T) {
	outside(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { ln.Close() }()
	addr := ln.Addr().(*net.TCPAddr)
	e := newEnv(t, func(s *backends.Spec) { s.Relay = []uint16{uint16(addr.Port)} })
	probe := backends.Probe{Dial: addr.String(), Timeout: time.Second}
	for range 5 {
		for _, where := range []backends.Where{backends.InCandidate, backends.InControl} {
			if got := e.canary(where, probe); !got.OK() {
				t.Fatalf("%s: %+v", where, got)
			}
		}
		ln.Close()
		if got := e.canary(backends.InCandidate, probe); got.OK() {
			t.Fatalf("nobody listens: %+v", got)
		}
		if ln, err = net.ListenTCP("tcp", addr); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCandidateFeelsTheViewsNetwork(t *testing.T) {
	outside(t)
	e := newEnv(t)
	e.detach("sleep", "1000")
	e.must("ip", "route", "del", "default")
	p := backends.Probe{Dial: "203.0.113.80:80", Timeout: 3 * time.Second}
	if got := e.canary(backends.InCandidate, p); got.Err != "network is unreachable" {
		t.Errorf("without a route in the view: %+v", got)
	}
	for _, where := range []backends.Where{backends.InControl, backends.InJail} {
		if got := e.canary(where, p); !got.OK() {
			t.Errorf("in %s: %+v", where, got)
		}
	}
	e.must("ip", "route", "add", "default", "via", "192.0.2.1")
	if got := e.canary(backends.InCandidate, p); !got.OK() {
		t.Errorf("with the route again: %+v", got)
	}
}
