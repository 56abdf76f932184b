package rtnl

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// NHA_FDB and NHA_RES_GROUP, which x/sys lacks, and the one value of the latter
// that is an answer: for how long a group was unbalanced.
const (
	nhaFDB               = 11
	nhaResilient         = 12
	resilientUnbalancedT = 4
)

// SizeofNhmsg is the size of struct nhmsg, which x/sys lacks.
const SizeofNhmsg = 8

// Nexthop turns a dumped nexthop object into a request that adds it.
func Nexthop(msg []byte, m IndexMap) ([]byte, bool) {
	ok := true
	var resilient, encap []byte
	out := filter(msg, SizeofNhmsg, func(a Attr) bool {
		switch a.Type {
		case unix.NHA_OIF:
			ok = m.rewrite(a.Value) && ok
		case nhaResilient:
			resilient = filter(a.Value, 0, func(a Attr) bool { return a.Type != resilientUnbalancedT })
			return false
		case unix.NHA_ENCAP:
			encap = bytes.Clone(a.Value) // the copy it lies in goes
			return false
		case unix.NHA_ID, unix.NHA_GROUP, unix.NHA_GROUP_TYPE, unix.NHA_BLACKHOLE, unix.NHA_GATEWAY,
			unix.NHA_ENCAP_TYPE, nhaFDB:
		default: // statistics
			return false
		}
		return true
	})
	// A request is refused when it lacks the mark of a nested attribute, which a
	// dump leaves out.
	if encap != nil {
		out = Append(out, unix.NHA_ENCAP|unix.NLA_F_NESTED, encap)
	}
	if resilient != nil {
		out = Append(out, nhaResilient|unix.NLA_F_NESTED, resilient)
	}
	out[1], out[3] = 0, 0 // scope and a reserved byte, refused in a request
	binary.NativeEndian.PutUint32(out[4:], binary.NativeEndian.Uint32(out[4:])&unix.RTNH_F_ONLINK)
	return out, ok
}

// NexthopDeletion turns a dumped nexthop object into a request that deletes it.
func NexthopDeletion(msg []byte) []byte {
	return Append(make([]byte, SizeofNhmsg), unix.NHA_ID, Find(msg[SizeofNhmsg:], unix.NHA_ID))
}
