package lanes

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

const (
	// fenceMetric comes after that of every other route.
	fenceMetric = ^uint32(0)
	// metric6 is what the kernel gives an IPv6 route without a metric.
	metric6 = 1024
)

// route is a default route of one of our tables. What a route of ours cannot
// have makes it other.
type route struct {
	six      bool
	table    uint32
	protocol uint8
	typ      uint8
	metric   uint32
	index    int        // of the interface; 0 for a fence
	via      netip.Addr // not valid: on the link
	onlink   bool
	other    bool
}

// laneRoute leads out.
func laneRoute(n uint32, w way.Lane) route {
	r := route{
		six: w.Six, table: n, protocol: protocol, typ: unix.RTN_UNICAST,
		index: w.Index, via: w.NextHop, onlink: w.NextHop.IsValid(),
	}
	if r.six {
		r.metric = metric6
	}
	return r
}

// fence refuses what has no way out.
func fence(n uint32, six bool) route {
	return route{six: six, table: n, protocol: protocol, typ: unix.RTN_UNREACHABLE, metric: fenceMetric}
}

// ours reports whether the route is one that this package makes.
func (r route) ours() (block, bool) {
	b, ok := blockOf(r.table)
	w := way.Lane{Index: r.index, NextHop: r.via, Six: r.six}
	return b, ok && !r.other && (r == fence(r.table, r.six) || r == laneRoute(r.table, w))
}

// request encodes the route as the kernel wants it in a request.
func (r route) request() []byte {
	m := make([]byte, unix.SizeofRtMsg)
	m[0], m[5], m[6], m[7] = family(r.six), r.protocol, unix.RT_SCOPE_UNIVERSE, r.typ
	if r.typ == unix.RTN_UNICAST && !r.via.IsValid() && !r.six {
		m[6] = unix.RT_SCOPE_LINK
	}
	if r.onlink {
		binary.NativeEndian.PutUint32(m[8:], unix.RTNH_F_ONLINK)
	}
	m = rtnl.AppendUint32(m, unix.RTA_TABLE, r.table)
	if r.metric != 0 {
		m = rtnl.AppendUint32(m, unix.RTA_PRIORITY, r.metric)
	}
	if r.index != 0 {
		m = rtnl.AppendUint32(m, unix.RTA_OIF, uint32(r.index))
	}
	switch {
	case !r.via.IsValid():
	case r.via.Is6() && !r.six: // struct rtvia
		via := binary.NativeEndian.AppendUint16(nil, unix.AF_INET6)
		m = rtnl.Append(m, unix.RTA_VIA, append(via, r.via.AsSlice()...))
	default:
		m = rtnl.Append(m, unix.RTA_GATEWAY, r.via.AsSlice())
	}
	return m
}

// parseRoute reads a dumped route.
func parseRoute(m []byte) route {
	flags := binary.NativeEndian.Uint32(m[8:])
	r := route{
		six: m[0] == unix.AF_INET6, table: uint32(m[4]), protocol: m[5], typ: m[7],
		onlink: flags&unix.RTNH_F_ONLINK != 0,
		other:  m[1] != 0 || m[2] != 0 || m[3] != 0 || flags&unix.RTM_F_CLONED != 0,
	}
	for a := range rtnl.Attrs(m[unix.SizeofRtMsg:]) {
		switch a.Type {
		case unix.RTA_TABLE:
			r.table = a.Uint32()
		case unix.RTA_PRIORITY:
			r.metric = a.Uint32()
		case unix.RTA_OIF:
			r.index = int(a.Uint32())
		case unix.RTA_GATEWAY:
			r.via, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_VIA:
			r.via, _ = netip.AddrFromSlice(a.Value[min(2, len(a.Value)):])
		case unix.RTA_CACHEINFO, unix.RTA_PREF:
		default:
			r.other = true
		}
	}
	if r.six && r.typ == unix.RTN_UNREACHABLE {
		r.index = 0 // the kernel gives it the loopback interface
	}
	return r
}

// routes dumps one table, or with table 0 the routes of all tables that have our
// protocol number.
func (k *kernel) routes(six bool, table uint32) ([]route, error) {
	ms, err := k.dumpRoutes(six, table)
	if err != nil {
		return nil, err
	}
	var out []route
	for _, m := range ms {
		r := parseRoute(m)
		// A kernel that does not filter answers with everything it has.
		if table == 0 && r.protocol == protocol || table != 0 && r.table == table {
			out = append(out, r)
		}
	}
	return out, nil
}

func (k *kernel) dumpRoutes(six bool, table uint32) ([][]byte, error) {
	m := make([]byte, unix.SizeofRtMsg)
	m[0] = family(six)
	var attrs []byte
	if table == 0 {
		m[5] = protocol
	} else {
		attrs = rtnl.AppendUint32(nil, unix.RTA_TABLE, table)
	}
	ms, err := k.Dump(unix.RTM_GETROUTE, m, attrs...)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return ms, nil
}

func (k *kernel) addRoute(r route) error    { return k.add(unix.RTM_NEWROUTE, r.request()) }
func (k *kernel) removeRoute(r route) error { return k.remove(unix.RTM_DELROUTE, r.request()) }
