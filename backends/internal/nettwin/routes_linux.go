package nettwin

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// addRoutes replaces the routes that addresses brought by those of the host, and
// adds nexthop objects. They need each other, so they are tried together: an
// IPv4 route may have an IPv6 gateway, an object needs the link route of its
// gateway, a route its object, a group its members.
func (r *replica) addRoutes() error {
	if err := flushRoutes(r.conn); err != nil {
		return err
	}
	var v4, v6, objects []wish
	for _, m := range r.host.routes {
		b, ok := rtnl.Route(m, r.toTwin)
		w := wish{typ: unix.RTM_NEWROUTE, msg: b, text: func() string { return "route " + rtnl.RouteText(m, r.host.name) }}
		switch {
		case !ok:
		case m[0] == unix.AF_INET:
			// APPEND keeps the order of routes that differ in nothing but their next hop.
			w.flags = unix.NLM_F_CREATE | unix.NLM_F_APPEND
			v4 = append(v4, w)
		default:
			w.flags = unix.NLM_F_CREATE // EXCL refuses fe80::/64 on a second link
			v6 = append(v6, w)
		}
	}
	for _, m := range r.host.nexthops {
		if b, ok := rtnl.Nexthop(m, r.toTwin); ok {
			objects = append(objects, wish{
				typ: unix.RTM_NEWNEXTHOP, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, msg: b,
				text: func() string { return "nexthop " + rtnl.NexthopText(m, r.host.name) },
			})
		}
	}
	return r.replay(v6, v4, objects)
}

func flushRoutes(c *rtnl.Conn) error {
	for _, af := range []byte{unix.AF_INET, unix.AF_INET6} {
		ms, err := c.Dump(unix.RTM_GETROUTE, family(af, unix.SizeofRtMsg))
		if err != nil {
			return fmt.Errorf("list routes of twin: %w", err)
		}
		for _, m := range ms {
			if rtnl.Local(m) {
				continue
			}
			if err := c.Do(unix.RTM_DELROUTE, 0, rtnl.Deletion(m)); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("delete route of twin: %w", err)
			}
		}
	}
	return nil
}
