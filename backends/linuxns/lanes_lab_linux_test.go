package linuxns

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// uplinks moves the test to a host with two links, one router behind the second
// and two behind the first, and a strict host: reverse paths are filtered, nothing
// is forwarded. The server answers on port 80 with the link that it was asked by.
//
//	host eth0 192.0.2.2/24    2001:db8:1::2/64 -- lan -+- gw1 .1   ::1  -- one   -+
//	                                                   +- gw3 .254 ::fe -- three -+- server 203.0.113.80
//	     eth1 198.51.100.2/24 2001:db8:2::2/64 --------- gw2 .1   ::1  -- two   -+         2001:db8:80::80
func uplinks(t *testing.T) {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.NetNS, nstest.NFT, nstest.Tool("ip"), nstest.Tool("nft"))
	l := netlab.New()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	nodes := map[string]*netlab.Node{}
	for _, name := range []string{"host", "lan", "gw1", "gw2", "gw3", "server"} {
		n, err := l.Node(name)
		if err != nil {
			t.Fatal(err)
		}
		nodes[name] = n
	}
	host, lan, gw1, gw2, gw3, server := nodes["host"], nodes["lan"], nodes["gw1"], nodes["gw2"], nodes["gw3"], nodes["server"]
	err := errors.Join(
		l.Wire(host, "eth0", lan, "host"), l.Wire(gw1, "in", lan, "gw1"), l.Wire(gw3, "in", lan, "gw3"),
		lan.Bridge("switch", "host", "gw1", "gw3"), l.Wire(host, "eth1", gw2, "in"),
		l.Wire(gw1, "out", server, "one"), l.Wire(gw2, "out", server, "two"), l.Wire(gw3, "out", server, "three"),
		host.Address("eth0", "192.0.2.2/24", "2001:db8:1::2/64"), host.Address("eth1", "198.51.100.2/24", "2001:db8:2::2/64"),
		gw1.Address("in", "192.0.2.1/24", "2001:db8:1::1/64"), gw1.Address("out", "203.0.113.1/24", "2001:db8:80::1/64"),
		gw2.Address("in", "198.51.100.1/24", "2001:db8:2::1/64"), gw2.Address("out", "203.0.114.1/24", "2001:db8:81::1/64"),
		gw3.Address("in", "192.0.2.254/24", "2001:db8:1::fe/64"), gw3.Address("out", "203.0.115.1/24", "2001:db8:82::1/64"),
		server.Address("one", "203.0.113.80/24", "2001:db8:80::80/64"), server.Address("two", "203.0.114.80/24", "2001:db8:81::80/64"),
		server.Address("three", "203.0.115.80/24", "2001:db8:82::80/64"),
		gw1.Forward(), gw2.Forward(), gw3.Forward(),
		host.Route("0.0.0.0/0", "192.0.2.1"), host.Route("::/0", "2001:db8:1::1"),
		gw2.Route("203.0.113.0/24", "203.0.114.80"), gw2.Route("2001:db8:80::/64", "2001:db8:81::80"),
		gw3.Route("203.0.113.0/24", "203.0.115.80"), gw3.Route("2001:db8:80::/64", "2001:db8:82::80"),
		// For sockets that answer by the link they were asked on.
		server.RouteMetric("0.0.0.0/0", "203.0.113.1", 1), server.RouteMetric("::/0", "2001:db8:80::1", 1),
		server.RouteMetric("0.0.0.0/0", "203.0.114.1", 2), server.RouteMetric("::/0", "2001:db8:81::1", 2),
		server.RouteMetric("0.0.0.0/0", "203.0.115.1", 3), server.RouteMetric("::/0", "2001:db8:82::1", 3),
	)
	for _, link := range []string{"all", "default", "eth0", "eth1"} {
		err = errors.Join(err, host.Sysctl("ipv4/conf/"+link+"/rp_filter", "1"))
	}
	if err != nil {
		t.Fatal(err)
	}
	answerByLink(t, server)
	// The holder is started from this thread and inherits its network.
	runtime.LockOSThread()
	if err := unix.Setns(int(host.NS().Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	until(t, "the links are up", func() bool { return up(network(t)) })
	run(t, "sh", "-ec", "nft add table inet closed; nft add chain inet closed forward '{ type filter hook forward priority 0; policy drop; }'")
}

func answerByLink(t *testing.T, server *netlab.Node) {
	t.Helper()
	for _, link := range []string{"one", "two", "three"} {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), link) }), err)
		}}
		err := server.Do(func() error {
			ln, err := lc.Listen(t.Context(), "tcp", ":80")
			if err != nil {
				return err
			}
			t.Cleanup(func() { ln.Close() })
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					_, _ = io.WriteString(c, link+"\n") // whoever asked may have gone
					c.Close()
				}
			}()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tagged lists the rules and routes of the thread's network that carry our tag.
func tagged(t *testing.T) []lanes.Object {
	t.Helper()
	ns, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	found, err := lanes.Find(int(ns.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// network is what of the thread's network must not change.
func network(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(nstest.HostDump(t)) {
		switch kind, _, _ := strings.Cut(line, " "); kind {
		case "mount", "process", "cgroup":
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

// up reports whether a dump shows both links as they will stay: the kernel adds
// flags, link-local addresses and local routes when a carrier comes.
func up(dump string) bool {
	local := func(dst string) bool { return strings.Contains(dump, " dst="+dst+"\n") }
	return strings.Count(dump, "multicast|running") == 2 && strings.Count(dump, " dst=fe80::\n") == 2 &&
		strings.Count(dump, " dst=ff00::\n") == 2 && local("2001:db8:1::2") && local("2001:db8:2::2") &&
		strings.Count(dump, " dst=fe80::") == 4
}
