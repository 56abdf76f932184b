package nettwin

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// advertise has a router say once that it is one, and of what prefix (RFC 4861).
func advertise(t *testing.T, n *netlab.Node, link string, prefix netip.Prefix) {
	t.Helper()
	have, err := observe(int(n.NS().Fd()))
	must(t, err)
	m := make([]byte, 16+32)
	m[0], m[4] = 134, 64                                      // router advertisement, hop limit
	binary.BigEndian.PutUint16(m[6:], 1800)                   // lifetime of the router
	o := m[16:]                                               // prefix information
	o[0], o[1], o[2], o[3] = 3, 4, uint8(prefix.Bits()), 0xc0 // on link, autonomous
	binary.BigEndian.PutUint32(o[4:], 7200)
	binary.BigEndian.PutUint32(o[8:], 3600)
	a := prefix.Addr().As16()
	copy(o[16:], a[:])
	must(t, n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
			return err
		}
		all := netip.MustParseAddr("ff02::1").As16()
		return unix.Sendto(fd, m, 0, &unix.SockaddrInet6{Addr: all, ZoneId: uint32(have.byName(link))})
	}))
}

// TestAdvertisedRouters lets the host learn its IPv6 from two routers. What it
// learnt is in the twin for good, and the twin itself learns nothing.
func TestAdvertisedRouters(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	l.onHost(t, "ip -6 route del default")
	for _, k := range []string{"accept_ra", "autoconf"} {
		must(t, l.host.Sysctl("ipv6/conf/eth0/"+k, "1"))
	}
	l.paths(t, "80")
	prefix := netip.MustParsePrefix("2001:db8:1:1::/64")
	for gw, suffix := range map[*netlab.Node]string{l.gw1: "::1", l.gw3: "::fe"} {
		must(t, gw.Address("in", "2001:db8:1:1"+suffix+"/64"))
	}
	must(t, l.server.Route("2001:db8:1:1::/64", "2001:db8:80::1"))
	learnt := func(want ...string) func() bool {
		return func() bool {
			out := l.onHost(t, "ip -6 route") + l.onHost(t, "ip -6 addr show dev eth0 -tentative")
			for _, w := range want {
				if !strings.Contains(out, w) {
					return false
				}
			}
			return true
		}
	}
	advertise(t, l.gw1, "in", prefix)
	eventually(t, "the host has learnt", learnt("proto ra", "inet6 2001:db8:1:1:"))
	l.mirror(t, Options{Ways: l.lanes(t)})
	if notes := strings.Join(l.twin.Notes(), "\n"); strings.Contains(notes, "route ") {
		t.Errorf("notes:\n%s", notes)
	}
	out, err := l.inside.Run(t.Context(), "ip", "-6", "route", "show", "default")
	must(t, err)
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, "proto ra") || strings.Contains(out, "expires") {
		t.Errorf("default routes in the twin:\n%s", out)
	}
	want, err := path(t, l.host, "tcp", "[2001:db8:80::80]:80")
	must(t, err)
	if got, err := path(t, l.inside, "tcp", "[2001:db8:80::80]:80"); err != nil || got != want {
		t.Errorf("the twin goes %q, %v; the host %q", got, err, want)
	}

	// A second router on the same link.
	advertise(t, l.gw3, "in", prefix)
	eventually(t, "the host has two routers", func() bool {
		return strings.Count(l.onHost(t, "ip -6 route show default"), "proto ra") == 2
	})
	must(t, l.twin.Reset(t.Context()))
	if notes := strings.Join(l.twin.Notes(), "\n"); strings.Count(notes, "is in the twin a part of another") != 2 {
		t.Errorf("no note that two routers are balanced:\n%s", notes)
	}
	got, err := path(t, l.inside, "tcp", "[2001:db8:80::80]:80")
	if _, from, _ := strings.Cut(want, " "); err != nil || !strings.HasSuffix(got, from) {
		t.Errorf("the twin goes %q, %v; the host %q", got, err, want)
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("difference: %q", got)
	}
}
