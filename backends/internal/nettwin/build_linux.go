package nettwin

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// port is one mirrored interface.
type port struct {
	host  rtnl.Link
	index int      // in the twin
	mac   []byte   // in the twin
	tap   *os.File // nil when the kernel made the link (lo, tunl0, …)
}

// replica fills a namespace with what another has. It is used once.
type replica struct {
	ns     int
	host   *network
	conn   *rtnl.Conn
	ports  []port
	toTwin rtnl.IndexMap
	notes  []string
	static map[int][]relay.NextHop // by the twin's number of the link
}

// build makes links, addresses, routes and rules in that order: each needs what
// stands before it.
func (r *replica) build() error {
	var err error
	if r.conn, err = rtnl.Dial(r.ns); err != nil {
		return err
	}
	defer r.conn.Close()
	for _, step := range []func() error{r.addLinks, r.setSysctls, r.raiseLinks, r.addAddresses, r.addRoutes, r.setRules, r.addNeighbors} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// addLinks makes a TAP for every link of the host that the kernel did not
// already make in the twin.
func (r *replica) addLinks() error {
	made, err := r.conn.Links()
	if err != nil {
		return fmt.Errorf("list links of twin: %w", err)
	}
	err = netns.Do(r.ns, func() error {
		for _, l := range r.host.links {
			p := port{host: l}
			if !slices.ContainsFunc(made, func(m rtnl.Link) bool { return m.Name == l.Name }) {
				if p.tap, err = openTAP(l); err != nil {
					return err
				}
			}
			r.ports = append(r.ports, p)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if made, err = r.conn.Links(); err != nil {
		return fmt.Errorf("list links of twin: %w", err)
	}
	twin := &network{links: made}
	r.toTwin = rtnl.IndexMap{}
	for i := range r.ports {
		p := &r.ports[i]
		p.index = twin.byName(p.host.Name)
		p.mac = twin.mac(p.index)
		r.toTwin[p.host.Index] = p.index
		if p.tap == nil {
			continue
		}
		l := p.host
		l.QueueLen = queueLen
		if err := r.conn.Dress(p.index, l); err != nil {
			return fmt.Errorf("dress tap %s: %w", l.Name, err)
		}
		if len(l.MAC) == len(p.mac) { // a tun or a tunnel has none; the TAP keeps its own
			p.mac = l.MAC
		}
		r.note(l)
	}
	return nil
}

// note says what of a link a TAP cannot be.
func (r *replica) note(l rtnl.Link) {
	switch {
	case l.Kind == "veth" || l.Kind == "" && l.Type == unix.ARPHRD_ETHER:
	case l.Kind != "":
		r.notes = append(r.notes, fmt.Sprintf("link %s (%s) is a plain Ethernet interface in the twin", l.Name, l.Kind))
	default:
		r.notes = append(r.notes, fmt.Sprintf("link %s is a plain Ethernet interface in the twin", l.Name))
	}
	if l.Master != 0 {
		r.notes = append(r.notes, fmt.Sprintf("link %s is no port of %s in the twin", l.Name, r.host.name(l.Master)))
	}
}

func (r *replica) setSysctls() error {
	return netns.Do(r.ns, func() error {
		for _, name := range copySysctls(r.host.sysctls) {
			r.notes = append(r.notes, fmt.Sprintf("sysctl %s is not the host's in the twin", name))
		}
		for _, p := range r.ports {
			if p.tap == nil {
				continue
			}
			if err := quiet(p.host.Name); err != nil {
				return fmt.Errorf("quiet tap %s: %w", p.host.Name, err)
			}
		}
		return openPing()
	})
}

func (r *replica) raiseLinks() error {
	for _, p := range r.ports {
		if p.tap != nil {
			// A veth whose peer is down, a bridge without ports: up, no carrier.
			setCarrier(p.tap, p.host.Carrier || !p.host.Up())
		}
		if p.host.Up() {
			if err := r.conn.SetUp(p.index, true); err != nil {
				return fmt.Errorf("set link %s up: %w", p.host.Name, err)
			}
		}
	}
	return nil
}

func (r *replica) addAddresses() error {
	for _, m := range r.host.addresses {
		b, ok := rtnl.Address(m, r.toTwin)
		if !ok {
			continue
		}
		err := r.conn.Do(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add address %s: %w", rtnl.AddressText(m, r.host.name), err)
		}
	}
	return nil
}

// wish is one message to send to the twin, and what it says in words.
type wish struct {
	typ   uint16
	flags int
	msg   []byte
	text  string
	err   error // why it was refused the last time
}

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
		w := wish{typ: unix.RTM_NEWROUTE, msg: b, text: "route " + rtnl.RouteText(m, r.host.name)}
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
				text: "nexthop " + rtnl.NexthopText(m, r.host.name),
			})
		}
	}
	return r.replay(v6, v4, objects)
}

// replay sends lists of wishes in up to four rounds. What is refused to the end
// becomes a note: the twin is then poorer than the host and says so.
func (r *replica) replay(lists ...[]wish) error {
	for range 4 {
		left := 0
		for i, list := range lists {
			again, err := r.try(list)
			if err != nil {
				return err
			}
			lists[i] = again
			left += len(again)
		}
		if left == 0 {
			return nil
		}
	}
	for _, w := range slices.Concat(lists...) {
		r.notes = append(r.notes, fmt.Sprintf("%s is not in the twin: %v", w.text, w.err))
	}
	return nil
}

// try sends wishes of one kind and returns those that were refused.
func (r *replica) try(list []wish) ([]wish, error) {
	if len(list) == 0 {
		return nil, nil
	}
	batch := make([][]byte, len(list))
	for i, w := range list {
		batch[i] = w.msg
	}
	var again []wish
	for i, err := range r.conn.Batch(list[0].typ, list[0].flags, batch) {
		if err == nil || errors.Is(err, unix.EEXIST) {
			continue
		}
		if _, ok := errors.AsType[unix.Errno](err); !ok {
			return nil, fmt.Errorf("add %s: %w", list[i].text, err)
		}
		list[i].err = err
		again = append(again, list[i])
	}
	return again, nil
}

// setRules deletes the rules that the host lacks and adds those the twin lacks.
func (r *replica) setRules() error {
	twin, err := observeRules(r.conn)
	if err != nil {
		return err
	}
	wanted := map[string][]byte{}
	for _, m := range r.host.rules {
		wanted[rtnl.RuleText(m)] = m
	}
	for _, m := range twin {
		k := rtnl.RuleText(m)
		if _, ok := wanted[k]; ok {
			delete(wanted, k)
			continue
		}
		if err := r.conn.Do(unix.RTM_DELRULE, 0, rtnl.Rule(m)); err != nil {
			return fmt.Errorf("delete rule %s: %w", k, err)
		}
	}
	for _, m := range r.host.rules { // in the host's order: equal preferences keep theirs
		k := rtnl.RuleText(m)
		if wanted[k] == nil {
			continue
		}
		if err := r.conn.Do(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, rtnl.Rule(m)); err != nil {
			r.notes = append(r.notes, fmt.Sprintf("rule %s is not in the twin: %v", k, err))
		}
	}
	return nil
}

// addNeighbors mirrors static neighbours. A frame tells its next hop by its MAC,
// and two next hops may share a real one, so each gets a MAC of the relay's kind.
func (r *replica) addNeighbors() error {
	r.static = map[int][]relay.NextHop{}
	serial := uint32(0)
	for _, m := range r.host.neighbors {
		serial++
		mac := relay.StaticMAC(serial)
		b, ok := rtnl.Neighbor(m, r.toTwin, mac)
		if !ok {
			continue
		}
		if err := r.conn.Do(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, b); err != nil {
			r.notes = append(r.notes, fmt.Sprintf("neighbour %s is not in the twin: %v", rtnl.NeighborText(m, r.host.name), err))
			continue
		}
		if addr, ok := rtnl.NeighborAddr(m); ok {
			i := index(b[4:])
			r.static[i] = append(r.static[i], relay.NextHop{Addr: addr, MAC: mac})
		}
	}
	return nil
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

func observeRules(c *rtnl.Conn) ([][]byte, error) {
	var out [][]byte
	for _, af := range []byte{unix.AF_INET, unix.AF_INET6} {
		ms, err := c.Dump(unix.RTM_GETRULE, family(af, rtnl.SizeofRuleHdr))
		if err != nil {
			return nil, fmt.Errorf("list rules of twin: %w", err)
		}
		out = append(out, ms...)
	}
	return out, nil
}
