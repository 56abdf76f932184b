package linuxns

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// The layout of struct rtmsg, and an attribute that x/sys lacks.
const (
	rtmDstLen   = 1
	rtmSrcLen   = 2
	rtmProtocol = 5
	rtaNHID     = 30 // RTA_NH_ID, Linux 5.3
)

// routerAdvertisements finds default routes that a router told the host. The
// kernel removes them when the host begins to forward, and later
// advertisements are not heard (Documentation/networking/ip-sysctl.rst,
// accept_ra); a twin hears none in the first place and keeps the route.
func routerAdvertisements(h *hostNet) (backends.Finding, error) {
	var learnt []string
	for _, m := range h.routes {
		if m[0] != unix.AF_INET6 || m[rtmDstLen] != 0 || m[rtmProtocol] != unix.RTPROT_RA {
			continue
		}
		for _, name := range h.outOf(m) {
			ra, err := sysctl("ipv6/conf/" + name + "/accept_ra")
			if err != nil {
				return backends.Finding{}, err
			}
			if ra != "2" && !slices.Contains(learnt, name) {
				learnt = append(learnt, name)
			}
		}
	}
	if learnt == nil {
		return fine("no default route depends on them")
	}
	return lesser(fmt.Sprintf("sysctl -w net.ipv6.conf.%s.accept_ra=2 keeps the route, before anything turns forwarding on", learnt[0]),
		"the IPv6 default route by %s is a router's: net.ipv6.conf.all.forwarding=1 removes it on the host, and not in a twin", listed(learnt))
}

// outOf names the interfaces of a route.
func (h *hostNet) outOf(m []byte) []string {
	attrs := m[unix.SizeofRtMsg:]
	var names []string
	if v := rtnl.Find(attrs, unix.RTA_OIF); len(v) == 4 {
		names = append(names, h.link(int(binary.NativeEndian.Uint32(v))))
	}
	hops := rtnl.Find(attrs, unix.RTA_MULTIPATH)
	for len(hops) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(hops))
		names = append(names, h.link(int(binary.NativeEndian.Uint32(hops[4:]))))
		if size < unix.SizeofRtNexthop || size > len(hops) {
			break
		}
		hops = hops[(size+3)&^3:]
	}
	return names
}

// routeKinds counts the routes that are more than a destination and a next hop.
// All of them are in a twin. What its kernel puts into an encapsulation arrives
// here as such, and is carried only where that does not show in the packet.
func routeKinds(h *hostNet) (backends.Finding, error) {
	var encap, object, source int
	for _, m := range h.routes {
		attrs := m[unix.SizeofRtMsg:]
		switch {
		case rtnl.Local(m):
		case rtnl.Find(attrs, unix.RTA_ENCAP) != nil:
			encap++
		case rtnl.Find(attrs, rtaNHID) != nil:
			object++
		case m[rtmSrcLen] != 0:
			source++
		}
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{object, "by a nexthop object"}, {source, "for some sources only"}, {encap, "with an encapsulation"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	switch {
	case encap > 0:
		return lesser("circuits by an encapsulated route can be checked on the host only, after apply",
			"routes: %s; circuits by an encapsulated one may be Unverifiable", strings.Join(parts, ", "))
	case parts != nil:
		return fine("routes: %s", strings.Join(parts, ", "))
	}
	return fine("plain routes only")
}
