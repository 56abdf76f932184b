package lanes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// normal is the one spelling of a lane: lanes are compared.
func normal(w way.Lane) (way.Lane, error) {
	w.NextHop = plain(w.NextHop)
	if w.Six && w.NextHop.Is4() {
		return w, fmt.Errorf("an IPv6 lane has the IPv4 gateway %s", w.NextHop)
	}
	return w, nil
}

// plain is an address as the kernel has it in routes and rules.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// limit says what of the host was in the way, for a lane.
func (l *Lanes) limit(k way.Kind, w way.Lane, reason string) *way.Limit {
	return &way.Limit{Kind: k, Subject: l.kernel.subject(w), Reason: reason}
}

// subject renders a lane: "eth1 via 198.51.100.1".
func (k *kernel) subject(w way.Lane) string {
	s := k.linkName(w.Index)
	if w.NextHop.IsValid() {
		s += " via " + w.NextHop.String()
	}
	return s
}

func (k *kernel) linkName(index int) string {
	if m, err := k.Get(unix.RTM_GETLINK, linkRequest(index)); err == nil && len(m) >= unix.SizeofIfInfomsg {
		for a := range rtnl.Attrs(m[unix.SizeofIfInfomsg:]) {
			if a.Type == unix.IFLA_IFNAME {
				return a.String()
			}
		}
	}
	return fmt.Sprintf("interface %d", index)
}

func linkRequest(index int) []byte {
	m := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(m[4:], uint32(index))
	return m
}

// refused turns the kernel's answer to a route into a limit where it is one.
// The others are errors: of rights, or of memory.
func (l *Lanes) refused(w way.Lane, err error) error {
	switch {
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return l.limit(way.Link, w, "the interface is gone from the host, or does not carry "+version(w.Six))
	case errors.Is(err, unix.ENETDOWN):
		return l.limit(way.Link, w, "the interface is down on the host")
	case errors.Is(err, unix.EACCES) && w.Six:
		return l.limit(way.Link, w, "IPv6 is switched off on the interface on the host")
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		reason := "the host's kernel refuses the gateway"
		var op *netlink.OpError
		if errors.As(err, &op) && op.Message != "" {
			reason += ": " + op.Message
		}
		return l.limit(way.Route, w, reason)
	case rtnl.NoFamily(err):
		return l.limit(way.Route, w, "the host has no "+version(w.Six))
	}
	return fmt.Errorf("make lane %s: %w", l.kernel.subject(w), err)
}

func version(six bool) string {
	if six {
		return "IPv6"
	}
	return "IPv4"
}
