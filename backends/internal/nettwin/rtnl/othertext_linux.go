package rtnl

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// NexthopText renders a dumped nexthop object.
func NexthopText(m []byte, name Names) string {
	key, rest := NexthopKey(m, name)
	return key + " " + rest
}

// NexthopKey splits it into its number and the rest.
func NexthopKey(m []byte, name Names) (key, rest string) {
	var w words
	for a := range Attrs(m[SizeofNhmsg:]) {
		switch a.Type {
		case unix.NHA_ID:
			key = fmt.Sprintf("id %d", a.Uint32())
		case unix.NHA_OIF:
			w.add("dev", name(int(a.Uint32())))
		case unix.NHA_GATEWAY:
			w.add("via", addr(a.Value))
		case unix.NHA_BLACKHOLE:
			w.add("blackhole")
		case unix.NHA_GROUP: // struct nexthop_grp: id(4), weight-1(1), its high byte(1), reserved(2)
			for b := a.Value; len(b) >= 8; b = b[8:] {
				w.add("group", fmt.Sprintf("%d,%d", binary.NativeEndian.Uint32(b), (int(b[4])|int(b[5])<<8)+1))
			}
		case unix.NHA_GROUP_TYPE:
			if len(a.Value) >= 2 && binary.NativeEndian.Uint16(a.Value) == 1 {
				w.add("type", "resilient")
			}
		case nhaResilient:
			b := filter(a.Value, 0, func(a Attr) bool { return a.Type != resilientUnbalancedT })
			w.add("resilient-options", hex.EncodeToString(b))
		case nhaFDB:
			w.add("fdb")
		case unix.NHA_ENCAP_TYPE:
			w.add("encap", encapType(a.Value))
		case unix.NHA_ENCAP:
			w.add("encap-options", hex.EncodeToString(a.Value))
		}
	}
	w.add("proto", protocol(m[2]))
	return key, w.String()
}

// NeighborText renders a dumped static neighbour.
func NeighborText(m []byte, name Names) string {
	key, rest := NeighborKey(m, name)
	return strings.TrimSpace(key + " " + rest)
}

// NeighborKey splits it into address and link, and the rest.
func NeighborKey(m []byte, name Names) (key, rest string) {
	var w words
	dst := ""
	for a := range Attrs(m[unix.SizeofNdMsg:]) {
		switch a.Type {
		case unix.NDA_DST:
			dst = addr(a.Value)
		case unix.NDA_LLADDR:
			w.add("lladdr", mac(a.Value))
		}
	}
	switch state := binary.NativeEndian.Uint16(m[8:]); {
	case state&unix.NUD_PERMANENT != 0:
		w.add("nud", "permanent")
	case state&unix.NUD_NOARP != 0:
		w.add("nud", "noarp")
	}
	key = fmt.Sprintf("%s dev %s", dst, name(int(binary.NativeEndian.Uint32(m[4:]))))
	if m[10]&unix.NTF_PROXY != 0 {
		key = "proxy " + key
	}
	if m[10]&unix.NTF_ROUTER != 0 {
		w.add("router")
	}
	return key, w.String()
}

// SizeofTcmsg is the size of struct tcmsg, which x/sys lacks.
const SizeofTcmsg = 20

// tcRoot is TC_H_ROOT, which x/sys lacks.
const tcRoot = 0xffffffff

// TCA_* attributes of a queueing discipline, which x/sys lacks. The others are
// statistics.
const (
	tcaKind    = 1
	tcaOptions = 2
)

// QdiscLink is the interface of a queueing discipline.
func QdiscLink(m []byte) int { return int(binary.NativeEndian.Uint32(m[4:])) }

// QdiscSet reports whether somebody put it there: the kernel's own default has
// no handle.
func QdiscSet(m []byte) bool { return binary.NativeEndian.Uint32(m[8:]) != 0 }

// qdiscOptions leaves out the one counter that stands among options: the packets
// that htb sent past its classes (direct_pkts of struct tc_htb_glob).
func qdiscOptions(kind string, b []byte) []byte {
	const tcaHTBInit, direct = 2, 16
	if kind != "htb" {
		return b
	}
	return filter(b, 0, func(a Attr) bool {
		if a.Type == tcaHTBInit && len(a.Value) >= direct+4 {
			clear(a.Value[direct : direct+4])
		}
		return true
	})
}

// QdiscKey splits a dumped queueing discipline into its place and the rest.
func QdiscKey(m []byte, name Names) (key, rest string) {
	var w words
	kind := text(Find(m[SizeofTcmsg:], tcaKind))
	w.add(kind)
	if b := qdiscOptions(kind, Find(m[SizeofTcmsg:], tcaOptions)); len(b) > 0 {
		w.add(fmt.Sprintf("options %x", b))
	}
	handle, parent := binary.NativeEndian.Uint32(m[8:]), binary.NativeEndian.Uint32(m[12:])
	key = "dev " + name(int(binary.NativeEndian.Uint32(m[4:])))
	if parent == tcRoot {
		key += " root"
	} else {
		key += fmt.Sprintf(" parent %x:%x", parent>>16, parent&0xffff)
	}
	if handle != 0 {
		w.add(fmt.Sprintf("handle %x:", handle>>16))
	}
	return key, w.String()
}
