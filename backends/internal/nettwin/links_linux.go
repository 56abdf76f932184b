package nettwin

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/userns"
)

// addLinks makes a TAP or TUN for every link of the host that the kernel did not
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
			if p.host.Up() && !p.host.Loopback() {
				r.note("link %s is the kernel's own in the twin: nothing leaves by it", p.host.Name)
			}
			continue
		}
		if err := r.dress(p); err != nil {
			return err
		}
		r.noteLink(p.host)
	}
	return nil
}

// dress makes a TAP look like the host's link.
func (r *replica) dress(p *port) error {
	l := p.host
	l.QueueLen = queueLen
	switch {
	case bare(l):
		l.MAC = nil // a TUN has none, whatever a tunnel calls its address
	case len(l.MAC) == len(p.mac):
		p.mac = l.MAC
	}
	if err := r.conn.Dress(p.index, l); err != nil {
		return fmt.Errorf("dress tap %s: %w", l.Name, err)
	}
	if p.host.Index != p.index {
		r.note("link %s is number %d in the twin, not %d", l.Name, p.index, p.host.Index)
	}
	return nil
}

// bare reports a link over which packets go without a link-layer header and that
// asks for no neighbours: tun, wireguard, ppp, tunnels. An Ethernet that does not
// ask (dummy, vrf, ifb) keeps its header.
func bare(l rtnl.Link) bool { return l.Type != unix.ARPHRD_ETHER && mute(l) }

// mute reports a link that asks for no neighbours.
func mute(l rtnl.Link) bool { return l.Flags&unix.IFF_NOARP != 0 }

// noteLink says what of a link the twin's cannot be. Traffic that the twin
// routes to it goes out by the host's, so the kind matters only to who looks at
// the link or changes it.
func (r *replica) noteLink(l rtnl.Link) {
	kind, what := "", "a plain Ethernet interface"
	if l.Kind != "" {
		kind = " (" + l.Kind + ")"
	}
	switch {
	case l.Kind == "wireguard":
		what = "a tun; its keys and peers stay on the host"
	case bare(l):
		what = "a tun; its other end is the host's link"
	}
	same := l.Kind == "veth" || (l.Kind == "" || l.Kind == "tun") && l.Type == unix.ARPHRD_ETHER // or a TAP
	if !same {
		r.note("link %s%s is in the twin %s", l.Name, kind, what)
	}
	if l.Master != 0 {
		r.note("link %s is no port of %s in the twin", l.Name, r.host.name(l.Master))
	}
}

func (r *replica) setSysctls() error {
	owner, err := userns.Foreign(r.ns)
	if err != nil {
		return err
	}
	defer owner.Close() // of nil is an error that says nothing
	return netns.Do(r.ns, func() error {
		for _, name := range copySysctls(r.host.sysctls) {
			r.note("sysctl %s is not the host's in the twin", name)
		}
		for _, p := range r.ports {
			if p.tap == nil {
				continue
			}
			if err := quiet(p.host.Name); err != nil {
				return fmt.Errorf("quiet tap %s: %w", p.host.Name, err)
			}
		}
		return openPing(owner)
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
