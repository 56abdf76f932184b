package rtnl

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

var routeTypes = map[uint8]string{
	unix.RTN_UNICAST: "", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast", unix.RTN_ANYCAST: "anycast",
	unix.RTN_MULTICAST: "multicast", unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable",
	unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw", unix.RTN_NAT: "nat",
}

// RouteText renders a dumped route.
func RouteText(m []byte, name Names) string {
	key, rest := RouteKey(m, name)
	return strings.TrimSpace(key + " " + rest)
}

// RouteKey splits a route into what a replacement is matched by (destination,
// table, metric, type of service) and the rest.
func RouteKey(m []byte, name Names) (key, rest string) {
	dst, src, tab, metric := "default", "", uint32(m[4]), uint32(0)
	var w words
	for a := range Attrs(m[unix.SizeofRtMsg:]) {
		switch a.Type {
		case unix.RTA_DST:
			dst = prefix(a.Value, m[1])
		case unix.RTA_SRC:
			src = prefix(a.Value, m[2])
		case unix.RTA_TABLE:
			tab = a.Uint32()
		case unix.RTA_PRIORITY:
			metric = a.Uint32()
		case unix.RTA_CACHEINFO:
		default:
			routeAttr(&w, a, name)
		}
	}
	w.add("proto", protocol(m[5]))
	if m[6] != unix.RT_SCOPE_UNIVERSE {
		w.add("scope", scope(m[6]))
	}
	if binary.NativeEndian.Uint32(m[8:])&unix.RTNH_F_ONLINK != 0 {
		w.add("onlink")
	}
	var k words
	if m[0] == unix.AF_INET6 {
		k.add("inet6")
	}
	if t, ok := routeTypes[m[7]]; !ok {
		w.add(fmt.Sprintf("type %d", m[7]))
	} else if t != "" {
		w = append(words{t}, w...)
	}
	k.add(dst)
	if src != "" {
		k.add("from", src)
	}
	k.add("table", table(tab))
	if metric != 0 {
		k.num("metric", metric)
	}
	if m[3] != 0 {
		k.add("tos", fmt.Sprintf("%#02x", m[3]))
	}
	return k.String(), w.String()
}

func routeAttr(w *words, a Attr, name Names) {
	switch a.Type {
	case unix.RTA_OIF:
		w.add("dev", name(int(a.Uint32())))
	case unix.RTA_IIF:
		w.add("iif", name(int(a.Uint32())))
	case unix.RTA_GATEWAY:
		w.add("via", addr(a.Value))
	case unix.RTA_VIA:
		w.add("via", via(a))
	case unix.RTA_PREFSRC:
		w.add("src", addr(a.Value))
	case rtaNexthopID:
		w.num("nhid", a.Uint32())
	case unix.RTA_FLOW:
		w.num("realm", a.Uint32())
	case unix.RTA_PREF:
		if len(a.Value) > 0 && a.Value[0] != 0 {
			w.add("pref", fmt.Sprint(a.Value[0]))
		}
	case unix.RTA_METRICS:
		for m := range Attrs(a.Value) {
			w.add(fmt.Sprintf("metric%d", m.Type), fmt.Sprintf("%x", m.Value))
		}
	case unix.RTA_MULTIPATH:
		multipath(w, a.Value, name)
	default:
		w.unknown(a)
	}
}

func multipath(w *words, b []byte, name Names) {
	for len(b) >= unix.SizeofRtNexthop {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtNexthop || n > len(b) {
			return
		}
		w.add("nexthop")
		for a := range Attrs(b[unix.SizeofRtNexthop:n]) {
			routeAttr(w, a, name)
		}
		w.add("dev", name(int(binary.NativeEndian.Uint32(b[4:]))))
		w.num("weight", uint32(b[3])+1)
		if b[2]&unix.RTNH_F_ONLINK != 0 {
			w.add("onlink")
		}
		b = b[min(align(n), len(b)):]
	}
}

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
		case unix.NHA_GROUP: // struct nexthop_grp: id(4), weight-1(1), reserved(3)
			for b := a.Value; len(b) >= 8; b = b[8:] {
				w.add("group", fmt.Sprintf("%d,%d", binary.NativeEndian.Uint32(b), b[4]+1))
			}
		case unix.NHA_GROUP_TYPE, unix.NHA_ENCAP_TYPE, unix.NHA_ENCAP, nhaFDB:
			w.unknown(a)
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
	if binary.NativeEndian.Uint16(m[8:])&unix.NUD_PERMANENT != 0 {
		w.add("nud", "permanent")
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

// sizeofTcmsg is the size of struct tcmsg, which x/sys lacks.
const sizeofTcmsg = 20

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

// QdiscKey splits a dumped queueing discipline into its place and the rest.
func QdiscKey(m []byte, name Names) (key, rest string) {
	var w words
	for a := range Attrs(m[sizeofTcmsg:]) {
		switch a.Type {
		case tcaKind:
			w = append(words{a.String()}, w...)
		case tcaOptions:
			if len(a.Value) > 0 {
				w.add(fmt.Sprintf("options %x", a.Value))
			}
		}
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
