package relay

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// verdict says whether a flow may be dialled from the host.
type verdict int

const (
	pass       verdict = iota
	fenced             // an address of the host itself, or of nobody
	unmirrored         // the host would not use that next hop
)

// judge asks the host's kernel which way it would go to dst on the lane's
// interface. Only if that is the way which the twin chose is the flow carried: a
// socket of ours follows the host's routes and no others. The answer is not
// kept, for the host's routes change.
func (l *lane) judge(dst netip.Addr) verdict {
	// 0.0.0.0 and :: connect to the host itself; ::ffff:127.0.0.1 is IPv4 to every
	// socket call and nothing of the kind on a wire.
	if !dst.IsValid() || dst.IsUnspecified() || dst.IsLoopback() || dst.Is4In6() {
		return fenced
	}
	typ, out, hop, err := l.relay.route(dst, l.hop.itf.Index)
	switch {
	case err != nil:
		return unmirrored
	case typ != unix.RTN_UNICAST: // local, broadcast, multicast
		return fenced
	case out != l.hop.itf.Index || hop != l.hop.addr && l.hop != l.hop.itf.own:
		return unmirrored
	}
	return pass
}

// route is one RTM_GETROUTE: type of the route, its interface, the next hop.
func (r *Relay) route(dst netip.Addr, oif int) (typ uint8, out int, hop netip.Addr, err error) {
	m := make([]byte, unix.SizeofRtMsg)
	m[0], m[1] = unix.AF_INET, uint8(dst.BitLen())
	if dst.Is6() {
		m[0] = unix.AF_INET6
	}
	m = rtnl.Append(m, unix.RTA_DST, dst.AsSlice())
	if oif != 0 {
		m = rtnl.AppendUint32(m, unix.RTA_OIF, uint32(oif))
	}
	a, err := r.host.Get(unix.RTM_GETROUTE, m)
	if err != nil {
		return 0, 0, hop, err
	}
	hop = dst
	for at := range rtnl.Attrs(a[unix.SizeofRtMsg:]) {
		switch at.Type {
		case unix.RTA_OIF:
			out = int(at.Uint32())
		case unix.RTA_GATEWAY:
			hop, _ = netip.AddrFromSlice(at.Value)
		case unix.RTA_VIA: // struct rtvia: family, address
			if len(at.Value) > 2 && binary.NativeEndian.Uint16(at.Value) == unix.AF_INET6 {
				hop, _ = netip.AddrFromSlice(at.Value[2:])
			}
		}
	}
	return a[7], out, hop, nil
}

// local reports whether dst is an address of the host.
func (r *Relay) local(dst netip.Addr) bool {
	if dst.IsLoopback() {
		return true
	}
	typ, _, _, err := r.route(dst, 0)
	return err == nil && typ == unix.RTN_LOCAL
}

// bind is a [net.Dialer] control function that ties a socket to the lane's
// interface.
func (l *lane) bind(_, _ string, c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) {
		err = unix.BindToDevice(int(fd), l.hop.itf.Name)
	})
	if cerr != nil {
		return cerr
	}
	return err
}

// target is the address that the outer socket is connected to.
func (l *lane) target(a tcpip.Address, port uint16) netip.AddrPort {
	d, _ := netip.AddrFromSlice(a.AsSlice())
	if d.Is6() && d.IsLinkLocalUnicast() {
		d = d.WithZone(l.hop.itf.Name)
	}
	return netip.AddrPortFrom(d, port)
}
