package rtnl

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// IndexMap says which interface of the twin stands for one of the host.
type IndexMap map[int]int

// rewrite replaces an interface number in place. False: the interface is not
// mirrored and neither can be what names it.
func (m IndexMap) rewrite(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	to, ok := m[int(binary.NativeEndian.Uint32(b))]
	if ok {
		binary.NativeEndian.PutUint32(b, uint32(to))
	}
	return ok
}

// The flags of an address that are a property of it and not of the moment.
const addressFlags = unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MCAUTOJOIN

// Address turns a dumped address into a request that adds it elsewhere, at
// once (no duplicate address detection) and for good (no lifetimes).
func Address(msg []byte, m IndexMap) ([]byte, bool) {
	flags := uint32(msg[2])
	out := filter(msg, unix.SizeofIfAddrmsg, func(a Attr) bool {
		switch a.Type {
		case unix.IFA_FLAGS:
			flags = a.Uint32()
			return false
		case unix.IFA_CACHEINFO:
			return false
		}
		return true
	})
	ok := m.rewrite(out[4:])
	out[2] = 0
	if flags&unix.IFA_F_DEPRECATED != 0 {
		// It must stay the last choice as a source: preferred for no time, valid
		// for ever.
		info := make([]byte, 16)
		binary.NativeEndian.PutUint32(info[4:], ^uint32(0))
		out = Append(out, unix.IFA_CACHEINFO, info)
	}
	flags &= addressFlags
	if out[0] == unix.AF_INET6 {
		flags |= unix.IFA_F_NODAD
	}
	return AppendUint32(out, unix.IFA_FLAGS, flags), ok
}

// Local reports a route that the kernel makes by itself: from an address (table
// local, broadcast, multicast, anycast), and cache entries. Such a route that
// somebody else made, like "local default dev lo table 100" for a proxy that gets
// its streams by TPROXY, is one like any other. (Kernels before 4.16 wrote no
// protocol into those of IPv6 that they made.)
func Local(msg []byte) bool {
	if binary.NativeEndian.Uint32(msg[8:])&unix.RTM_F_CLONED != 0 {
		return true
	}
	made := msg[5] == unix.RTPROT_KERNEL || msg[5] == unix.RTPROT_UNSPEC
	switch msg[7] {
	case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST, unix.RTN_MULTICAST:
		return made
	}
	return made && msg[4] == unix.RT_TABLE_LOCAL
}

// rtaNexthopID is RTA_NH_ID, which x/sys lacks.
const rtaNexthopID = 30

// routeFlags are set by the kernel and refused or meaningless in a request.
const routeFlags = unix.RTNH_F_DEAD | unix.RTNH_F_LINKDOWN | unix.RTNH_F_OFFLOAD | unix.RTNH_F_TRAP | unix.RTNH_F_UNRESOLVED |
	unix.RTM_F_CLONED | unix.RTM_F_OFFLOAD | unix.RTM_F_TRAP | unix.RTM_F_OFFLOAD_FAILED

// Expires is the time that a dumped route has left. False: it is there for good.
func Expires(msg []byte) (time.Duration, bool) {
	info := Find(msg[unix.SizeofRtMsg:], unix.RTA_CACHEINFO) // struct rta_cacheinfo
	if len(info) < 12 {
		return 0, false
	}
	const tick = 10 * time.Millisecond // USER_HZ
	left := int32(binary.NativeEndian.Uint32(info[8:]))
	return time.Duration(left) * tick, left != 0
}

// Route turns a dumped route into a request that adds it. A lifetime is kept,
// except that of a route that a router advertises: the twin hears no routers, so
// what the host goes on renewing would run out there.
func Route(msg []byte, m IndexMap) ([]byte, bool) {
	// A route that names a nexthop object is dumped with the object's interface
	// and gateway beside it, and a request with both is EINVAL.
	object := Find(msg[unix.SizeofRtMsg:], rtaNexthopID) != nil
	ok := true
	out := filter(msg, unix.SizeofRtMsg, func(a Attr) bool {
		switch a.Type {
		case unix.RTA_CACHEINFO:
			return false
		case unix.RTA_OIF, unix.RTA_MULTIPATH, unix.RTA_GATEWAY, unix.RTA_VIA:
			if object {
				return false
			}
		}
		switch a.Type {
		case unix.RTA_OIF, unix.RTA_IIF:
			ok = m.rewrite(a.Value) && ok
		case unix.RTA_MULTIPATH:
			ok = nexthops(a.Value, m) && ok
		}
		return true
	})
	clear32(out[8:], routeFlags)
	if left, ok := Expires(msg); ok && msg[5] != unix.RTPROT_RA && msg[5] != unix.RTPROT_KERNEL {
		out = AppendUint32(out, unix.RTA_EXPIRES, uint32(max(1, (left+time.Second-1)/time.Second)))
	}
	return out, ok
}

// Lasting is a request for a route without its lifetime, by which two that were
// read at different times can be compared.
func Lasting(request []byte) []byte {
	return filter(request, unix.SizeofRtMsg, func(a Attr) bool { return a.Type != unix.RTA_EXPIRES })
}

// nexthops rewrites the interfaces of a multipath route in place.
func nexthops(b []byte, m IndexMap) bool {
	ok := true
	for len(b) >= unix.SizeofRtNexthop {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtNexthop || n > len(b) {
			break
		}
		b[2] &^= unix.RTNH_F_DEAD | unix.RTNH_F_LINKDOWN | unix.RTNH_F_OFFLOAD | unix.RTNH_F_TRAP
		ok = m.rewrite(b[4:]) && ok
		b = b[min(align(n), len(b)):]
	}
	return ok
}

// Deletion turns a dumped route into a request that deletes exactly it. IPv6
// finds a route by its gateway and metric, and refuses lwtunnel attributes here.
func Deletion(msg []byte) []byte {
	out := filter(msg, unix.SizeofRtMsg, func(a Attr) bool {
		switch a.Type {
		case unix.RTA_DST, unix.RTA_SRC, unix.RTA_OIF, unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_PRIORITY, unix.RTA_TABLE, rtaNexthopID, unix.RTA_MULTIPATH:
			return true
		}
		return false
	})
	clear32(out[8:], routeFlags)
	return out
}

// Gateway is a next hop on a link.
type Gateway struct {
	Index int
	Addr  netip.Addr
}

// Gateways lists those of a route.
func Gateways(msg []byte) []Gateway {
	var out []Gateway
	body := msg[unix.SizeofRtMsg:]
	out = appendGateway(out, int(number(Find(body, unix.RTA_OIF))), body)
	for b := Find(body, unix.RTA_MULTIPATH); len(b) >= unix.SizeofRtNexthop; {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtNexthop || n > len(b) {
			break
		}
		out = appendGateway(out, int(number(b[4:])), b[unix.SizeofRtNexthop:n])
		b = b[min(align(n), len(b)):]
	}
	return out
}

// NexthopGateways lists that of a nexthop object.
func NexthopGateways(msg []byte) []Gateway {
	body := msg[SizeofNhmsg:]
	a, ok := netip.AddrFromSlice(Find(body, unix.NHA_GATEWAY))
	if !ok {
		return nil
	}
	return []Gateway{{int(number(Find(body, unix.NHA_OIF))), a}}
}

func appendGateway(list []Gateway, index int, attrs []byte) []Gateway {
	b := Find(attrs, unix.RTA_GATEWAY)
	if v := Find(attrs, unix.RTA_VIA); len(v) > 2 { // struct rtvia: family, address
		b = v[2:]
	}
	if a, ok := netip.AddrFromSlice(b); ok {
		list = append(list, Gateway{index, a})
	}
	return list
}

// Link makes a route to the gateway itself, over its link.
func (g Gateway) Link() []byte {
	m := make([]byte, unix.SizeofRtMsg) // struct rtmsg
	m[0], m[1], m[4], m[5], m[6], m[7] = unix.AF_INET, uint8(g.Addr.BitLen()), unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_LINK, unix.RTN_UNICAST
	if g.Addr.Is6() {
		m[0] = unix.AF_INET6
	}
	m = Append(m, unix.RTA_DST, g.Addr.AsSlice())
	return AppendUint32(m, unix.RTA_OIF, uint32(g.Index))
}

func clear32(b []byte, bits uint32) {
	binary.NativeEndian.PutUint32(b, binary.NativeEndian.Uint32(b)&^bits)
}
