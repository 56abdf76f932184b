package linuxns

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/inetdiag"
)

// Connections lists the established TCP connections of the network namespace
// it is called in. A connection over loopback is listed by each of its ends;
// its addresses say so.
type Connections struct{}

// Connections implements [backends.Connector]. The order is by local, then
// remote address.
func (Connections) Connections(ctx context.Context) ([]backends.Connection, error) {
	socks, err := inetdiag.TCP(inetdiag.Established, inetdiag.Listen)
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	listeners := map[uint16][]inetdiag.Socket{}
	conns := socks[:0:0]
	inodes := map[uint32]bool{}
	for _, s := range socks {
		if s.State == inetdiag.Listen {
			listeners[s.Local.Port()] = append(listeners[s.Local.Port()], s)
			continue
		}
		conns = append(conns, s)
		if s.Inode != 0 {
			inodes[s.Inode] = true
		}
	}
	owners, err := socketOwners(ctx, inodes)
	if err != nil {
		return nil, fmt.Errorf("find owners of connections: %w", err)
	}
	slices.SortFunc(conns, func(a, b inetdiag.Socket) int {
		return cmp.Or(a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
	})
	names := map[uint32]string{}
	out := make([]backends.Connection, 0, len(conns))
	for _, c := range conns {
		p := owners[c.Inode]
		out = append(out, backends.Connection{
			Local:     zoned(c.Local, c.Ifindex, names).String(),
			Remote:    zoned(c.Remote, c.Ifindex, names).String(),
			Direction: direction(c, listeners[c.Local.Port()]),
			PID:       p.PID,
			Comm:      p.Comm,
			UID:       c.UID,
			Interface: linkName(c.Ifindex, names),
		})
	}
	return out, nil
}

// direction is inbound when a present listener could have accepted c. The
// kernel keeps no record of who began a connection, so one whose listener was
// closed since looks outbound.
func direction(c inetdiag.Socket, listeners []inetdiag.Socket) string {
	for _, l := range listeners {
		if l.Accepts(c) {
			return "inbound"
		}
	}
	return "outbound"
}

// zoned adds the scope a link-local address means nothing without. The kernel
// binds such a socket to its interface, so the index is always there.
func zoned(a netip.AddrPort, ifindex uint32, names map[uint32]string) netip.AddrPort {
	if !a.Addr().Is6() || !a.Addr().IsLinkLocalUnicast() {
		return a
	}
	return netip.AddrPortFrom(a.Addr().WithZone(linkName(ifindex, names)), a.Port())
}

// linkName returns "" for 0 and for an interface that went away meanwhile.
func linkName(ifindex uint32, names map[uint32]string) string {
	if ifindex == 0 {
		return ""
	}
	name, ok := names[ifindex]
	if !ok {
		if link, err := net.InterfaceByIndex(int(ifindex)); err == nil {
			name = link.Name
		}
		names[ifindex] = name
	}
	return name
}

var _ backends.Connector = Connections{}
