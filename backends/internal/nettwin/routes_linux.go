package nettwin

import (
	"slices"

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
	sent := slices.Concat(v4, v6)
	refused, err := r.replay(v6, v4, objects)
	if err != nil {
		return err
	}
	return r.verifyRoutes(sent, refused)
}

// verifyRoutes notes what the kernel made otherwise than it was told. Two routers
// that advertise themselves as default are two routes on the host, of which one is
// used as long as it answers; made by hand they are one, and balanced.
func (r *replica) verifyRoutes(sent, refused []wish) error {
	twin, err := dumpRoutes(r.conn)
	if err != nil {
		return err
	}
	same := rtnl.IndexMap{}
	for _, p := range r.ports {
		same[p.index] = p.index
	}
	have := map[string]int{}
	for _, w := range refused { // which has a note already
		have[string(rtnl.Lasting(w.msg))]++
	}
	for _, m := range twin {
		b, _ := rtnl.Route(m, same)
		have[string(rtnl.Lasting(b))]++
	}
	for _, w := range sent {
		k := string(rtnl.Lasting(w.msg))
		if have[k]--; have[k] < 0 {
			r.note("%s is in the twin a part of another", w.text())
		}
	}
	return nil
}

func flushRoutes(c *rtnl.Conn) error {
	ms, err := dumpRoutes(c)
	if err != nil {
		return err
	}
	for i, m := range ms {
		ms[i] = rtnl.Deletion(m)
	}
	return remove(c, unix.RTM_DELROUTE, ms, "route")
}
