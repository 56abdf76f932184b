package rtnl

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Static reports a neighbour that somebody configured: permanent, proxy, or one
// that is never asked for; not learnt, and not the kernel's own entries for
// multicast, broadcast and links that do not ask, whose type says so.
func Static(msg []byte) bool {
	state := binary.NativeEndian.Uint16(msg[8:])
	return state&unix.NUD_PERMANENT != 0 || msg[10]&unix.NTF_PROXY != 0 || state&unix.NUD_NOARP != 0 && msg[11] == unix.RTN_UNICAST
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
