package lanes

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childStep) != "" {
		os.Exit(child())
	}
	nstest.Main(m)
}

// lab is a host that forwards nothing, filters reverse paths strictly and has
// two uplinks. Each gateway translates to its own address, so the server sees
// which way was taken:
//
//	host eth0 192.0.2.2/24    2001:db8:1::2/64 -- gw1 .1 ::1 -- 203.0.113.1 2001:db8:80::1 --+
//	     eth1 198.51.100.2/24 2001:db8:2::2/64 -- gw2 .1 ::1 -- 203.0.113.2 2001:db8:80::2 --+-- server 203.0.113.80 2001:db8:80::80
type lab struct {
	*netlab.Lab
	host, gw1, gw2, server *netlab.Node
	eth0, eth1             int
}

const (
	server4, server6 = "203.0.113.80", "2001:db8:80::80"
	gw1at4, gw2at4   = "203.0.113.1", "203.0.114.2" // as the server sees them
	gw1at6, gw2at6   = "2001:db8:80::1", "2001:db8:81::2"
)

const hostFirewall = `
table inet firewall {
	chain forward { type filter hook forward priority 0; policy drop; }
	chain input { type filter hook input priority 0; policy drop; iif lo accept; ct state established,related accept; icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept; }
}`

const masquerade = `table inet nat { chain out { type nat hook postrouting priority 100; oif out masquerade; }; }`

func newLab(t *testing.T) *lab {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.NetNS, nstest.NFT, nstest.Tool("nft"), nstest.Tool("ip"))
	l := &lab{Lab: netlab.New()}
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
		l.host.Address("eth0", "192.0.2.2/24", "2001:db8:1::2/64"), l.host.Address("eth1", "198.51.100.2/24", "2001:db8:2::2/64"),
		l.gw1.Address("in", "192.0.2.1/24", "2001:db8:1::1/64", "fe80::1/64"), l.gw1.Address("out", gw1at4+"/24", gw1at6+"/64"),
		l.gw2.Address("in", "198.51.100.1/24", "2001:db8:2::1/64", "fe80::1/64"), l.gw2.Address("out", gw2at4+"/24", gw2at6+"/64"),
		l.server.Address("one", server4+"/24", server6+"/64"), l.server.Address("two", "203.0.114.80/24", "2001:db8:81::80/64"),
		l.gw1.Forward(), l.gw2.Forward(),
		l.gw2.Route(server4+"/32", "203.0.114.80"), l.gw2.Route(server6+"/128", "2001:db8:81::80"),
		l.gw1.Route("198.51.100.0/24", "192.0.2.2"), l.gw1.Route("2001:db8:2::/64", "2001:db8:1::2"),
		l.gw2.Route("192.0.2.0/24", "198.51.100.2"), l.gw2.Route("2001:db8:1::/64", "2001:db8:2::2"),
		l.host.Route("0.0.0.0/0", "192.0.2.1"), l.host.Route("::/0", "2001:db8:1::1"),
		// What is on the link of eth1, for the lane without a gateway, is gw2.
		l.gw2.Sysctl("ipv4/conf/in/proxy_arp", "1"),
	))
	for _, c := range []string{"all", "default", "eth0", "eth1"} {
		must(t, l.host.Sysctl("ipv4/conf/"+c+"/rp_filter", "1"))
	}
	l.run(t, l.host, "nft", hostFirewall)
	l.run(t, l.gw1, "nft", masquerade)
	l.run(t, l.gw2, "nft", masquerade)
	l.run(t, l.gw2, "ip", "-6 neigh add proxy "+server6+" dev in")
	l.run(t, l.gw2, "ip", "link set lo up") // proxy_ndp below needs no more
	must(t, l.gw2.Sysctl("ipv6/conf/in/proxy_ndp", "1"))
	l.eth0, l.eth1 = l.index(t, "eth0"), l.index(t, "eth1")
	l.settled(t)
	for _, network := range []string{"tcp4", "tcp6"} {
		l.greet(t, network)
	}
	return l
}

// settled waits for the routes to the host's own IPv6 addresses, which the kernel
// makes later, on its own time: loopback's, and two of each uplink.
func (l *lab) settled(t *testing.T) {
	t.Helper()
	n := 0
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		must(t, l.host.Do(func() error {
			rs, err := netlink.RouteListFiltered(netlink.FAMILY_V6,
				&netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
			n = len(rs)
			return err
		}))
		if n == 5 {
			return
		}
	}
	t.Fatalf("%d routes to own IPv6 addresses, want 5", n)
}

// run runs nft with a ruleset, or another tool with the words of a line.
func (l *lab) run(t *testing.T, n *netlab.Node, tool, line string) {
	t.Helper()
	argv := append([]string{tool}, strings.Fields(line)...)
	if tool == "nft" {
		argv = []string{tool, line}
	}
	_, err := n.Run(t.Context(), argv...)
	must(t, err)
}

// ip changes something of the host.
func (l *lab) ip(t *testing.T, line string) { t.Helper(); l.run(t, l.host, "ip", line) }

func (l *lab) index(t *testing.T, name string) (index int) {
	t.Helper()
	must(t, l.host.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			index = link.Attrs().Index
		}
		return err
	}))
	return index
}

// greet says to whoever connects to the server where they come from.
func (l *lab) greet(t *testing.T, network string) {
	t.Helper()
	ln, err := l.server.Listen(network, ":80")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String())
			c.Close()
		}
	}()
}

// lanes opens lanes on the lab's host.
func (l *lab) lanes(t *testing.T, o Options) *Lanes {
	t.Helper()
	ls, err := Open(l.host.NS(), o)
	must(t, err)
	t.Cleanup(func() { must(t, ls.Close()) })
	return ls
}

// dump is everything of the host's network that may not change. Processes and
// cgroups are the machine's, where other tests have theirs.
func (l *lab) dump(t *testing.T) string {
	t.Helper()
	var s string
	must(t, l.host.Do(func() error { s = nstest.HostDump(t); return nil }))
	var b strings.Builder
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "process ") && !strings.HasPrefix(line, "cgroup ") && !strings.HasPrefix(line, "mount ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// same wants the host to be as it was.
func (l *lab) same(t *testing.T, before string) {
	t.Helper()
	for _, d := range nstest.Difference(before, l.dump(t)) {
		t.Errorf("the host differs: %s", d)
	}
}

// bound is a TCP socket of the host with a mark and a local address.
func (l *lab) bound(t *testing.T, mark uint32, src string) (fd int, at netip.AddrPort) {
	t.Helper()
	a := netip.MustParseAddr(src)
	must(t, l.host.Do(func() (err error) {
		fd, err = unix.Socket(map[bool]int{false: unix.AF_INET, true: unix.AF_INET6}[a.Is6()], unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)))
	must(t, unix.Bind(fd, sockaddr(netip.AddrPortFrom(a, 0))))
	sa, err := unix.Getsockname(fd)
	must(t, err)
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		at = netip.AddrPortFrom(a, uint16(sa.Port))
	case *unix.SockaddrInet6:
		at = netip.AddrPortFrom(a, uint16(sa.Port))
	}
	return fd, at
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// greeting connects a bound socket to the server and returns under which address
// it is seen there, "" when it is not within the time.
func greeting(t *testing.T, fd int, wait time.Duration) string {
	t.Helper()
	sa, err := unix.Getsockname(fd)
	must(t, err)
	to := sockaddr(netip.AddrPortFrom(netip.MustParseAddr(server4), 80))
	if _, six := sa.(*unix.SockaddrInet6); six {
		to = sockaddr(netip.AddrPortFrom(netip.MustParseAddr(server6), 80))
	}
	tv := unix.NsecToTimeval(int64(wait))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	switch err := unix.Connect(fd, to); {
	case errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return ""
	default:
		must(t, err)
	}
	b := make([]byte, 64)
	n, err := unix.Read(fd, b)
	must(t, err)
	return string(b[:n])
}

// seen is how the server sees a new marked socket of the host.
func (l *lab) seen(t *testing.T, mark uint32, src string) string {
	t.Helper()
	fd, _ := l.bound(t, mark, src)
	defer unix.Close(fd)
	return greeting(t, fd, 3*time.Second)
}

func (l *lab) via(gateway string, index int) way.Lane {
	a := netip.MustParseAddr(gateway)
	return way.Lane{Index: index, NextHop: a, Six: a.Is6()}
}

func wantLimit(t *testing.T, err error, kind way.Kind) *way.Limit {
	t.Helper()
	limit, ok := err.(*way.Limit) //nolint:errorlint // who calls may look without unwrapping
	if !ok || limit.Kind != kind {
		t.Fatalf("got %T %v, want a limit of kind %s", err, err, kind)
	}
	return limit
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
