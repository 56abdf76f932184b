package rtnl

import (
	"encoding/binary"
	"net/netip"

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

// Local reports a route that the kernel makes by itself from an address:
// table local, broadcast, multicast, anycast, and cache entries.
func Local(msg []byte) bool {
	switch msg[7] {
	case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST, unix.RTN_MULTICAST:
		return true
	}
	return msg[4] == unix.RT_TABLE_LOCAL || binary.NativeEndian.Uint32(msg[8:])&unix.RTM_F_CLONED != 0
}

// rtaNexthopID is RTA_NH_ID, which x/sys lacks.
const rtaNexthopID = 30

// routeFlags are set by the kernel and refused or meaningless in a request.
const routeFlags = unix.RTNH_F_DEAD | unix.RTNH_F_LINKDOWN | unix.RTNH_F_OFFLOAD | unix.RTNH_F_TRAP | unix.RTNH_F_UNRESOLVED |
	unix.RTM_F_CLONED | unix.RTM_F_OFFLOAD | unix.RTM_F_TRAP | unix.RTM_F_OFFLOAD_FAILED

// Route turns a dumped route into a request that adds it.
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
	return out, ok
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

// nhaFDB is NHA_FDB, which x/sys lacks.
const nhaFDB = 11

// SizeofNhmsg is the size of struct nhmsg, which x/sys lacks.
const SizeofNhmsg = 8

// Nexthop turns a dumped nexthop object into a request that adds it.
func Nexthop(msg []byte, m IndexMap) ([]byte, bool) {
	ok := true
	out := filter(msg, SizeofNhmsg, func(a Attr) bool {
		switch a.Type {
		case unix.NHA_OIF:
			ok = m.rewrite(a.Value) && ok
		case unix.NHA_ID, unix.NHA_GROUP, unix.NHA_GROUP_TYPE, unix.NHA_BLACKHOLE, unix.NHA_GATEWAY,
			unix.NHA_ENCAP_TYPE, unix.NHA_ENCAP, nhaFDB:
		default: // statistics and the state of resilient groups
			return false
		}
		return true
	})
	out[1], out[3] = 0, 0 // scope and a reserved byte, refused in a request
	binary.NativeEndian.PutUint32(out[4:], binary.NativeEndian.Uint32(out[4:])&unix.RTNH_F_ONLINK)
	return out, ok
}

// NexthopDeletion turns a dumped nexthop object into a request that deletes it.
func NexthopDeletion(msg []byte) []byte {
	return Append(make([]byte, SizeofNhmsg), unix.NHA_ID, Find(msg[SizeofNhmsg:], unix.NHA_ID))
}

// SizeofRuleHdr is the size of struct fib_rule_hdr, which x/sys lacks.
const SizeofRuleHdr = 12

// Rule turns a dumped policy rule into a request that adds or deletes it.
// Rules name interfaces, so nothing is rewritten.
func Rule(msg []byte) []byte {
	out := filter(msg, SizeofRuleHdr, func(Attr) bool { return true })
	// Permanent, unresolved and detached are answers, not wishes.
	flags := binary.NativeEndian.Uint32(out[8:])
	binary.NativeEndian.PutUint32(out[8:], flags&unix.FIB_RULE_INVERT)
	return out
}

// PlainRule makes a rule that sends everything to a table.
func PlainRule(af byte, pref uint32, tab byte) []byte {
	m := make([]byte, SizeofRuleHdr)
	m[0], m[4], m[7] = af, tab, ruleToTable
	m = AppendUint32(m, unix.FRA_PRIORITY, pref)
	return AppendUint32(m, unix.FRA_TABLE, uint32(tab))
}

// Static reports a neighbour that somebody configured: permanent or proxy, not
// learnt and not the kernel's own multicast entries.
func Static(msg []byte) bool {
	state := binary.NativeEndian.Uint16(msg[8:])
	return state&unix.NUD_PERMANENT != 0 || msg[10]&unix.NTF_PROXY != 0
}

func clear32(b []byte, bits uint32) {
	binary.NativeEndian.PutUint32(b, binary.NativeEndian.Uint32(b)&^bits)
}

// NDA_PROTOCOL and NDA_FLAGS_EXT, which x/sys lacks.
const (
	ndaProtocol = 12
	ndaFlagsExt = 15
)

// Neighbor turns a dumped static neighbour into a request that adds it with
// another MAC.
func Neighbor(msg []byte, m IndexMap, mac []byte) ([]byte, bool) {
	out := filter(msg, unix.SizeofNdMsg, func(a Attr) bool {
		switch a.Type {
		case unix.NDA_DST, ndaProtocol, ndaFlagsExt:
			return true
		case unix.NDA_LLADDR:
			return len(a.Value) == len(mac) && copy(a.Value, mac) > 0
		}
		return false
	})
	return out, m.rewrite(out[4:])
}

// NeighborAddr is the address of a neighbour.
func NeighborAddr(msg []byte) (netip.Addr, bool) {
	return netip.AddrFromSlice(Find(msg[unix.SizeofNdMsg:], unix.NDA_DST))
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
