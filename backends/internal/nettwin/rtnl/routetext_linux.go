package rtnl

import (
	"encoding/binary"
	"encoding/hex"
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
	if _, ok := Expires(m); ok && m[5] != unix.RTPROT_RA && m[5] != unix.RTPROT_KERNEL {
		w.add("expires")
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
		if len(a.Value) > 0 && a.Value[0] != 0 { // 2 is invalid, RFC 4191
			w.add("pref", map[byte]string{1: "high", 3: "low"}[a.Value[0]])
		}
	case unix.RTA_METRICS:
		metrics(w, a.Value)
	case unix.RTA_ENCAP_TYPE:
		w.add("encap", encapType(a.Value))
	case unix.RTA_ENCAP:
		w.add("encap-options", hex.EncodeToString(a.Value))
	case unix.RTA_MULTIPATH:
		multipath(w, a.Value, name)
	default:
		w.unknown(a)
	}
}

// lwtunnel types (enum lwtunnel_encap_types), which x/sys lacks.
var encapTypes = []string{"none", "mpls", "ip", "ila", "ip6", "seg6", "bpf", "seg6local", "rpl", "ioam6", "xfrm"}

func encapType(b []byte) string {
	if len(b) < 2 {
		return hex.EncodeToString(b)
	}
	if t := int(binary.NativeEndian.Uint16(b)); t < len(encapTypes) {
		return encapTypes[t]
	}
	return fmt.Sprint(binary.NativeEndian.Uint16(b))
}

// metricNames are RTAX_* in the words of ip-route(8).
var metricNames = map[uint16]string{
	unix.RTAX_MTU: "mtu", unix.RTAX_WINDOW: "window", unix.RTAX_RTT: "rtt", unix.RTAX_RTTVAR: "rttvar", unix.RTAX_SSTHRESH: "ssthresh",
	unix.RTAX_CWND: "cwnd", unix.RTAX_ADVMSS: "advmss", unix.RTAX_REORDERING: "reordering", unix.RTAX_HOPLIMIT: "hoplimit",
	unix.RTAX_INITCWND: "initcwnd", unix.RTAX_FEATURES: "features", unix.RTAX_RTO_MIN: "rto_min", unix.RTAX_INITRWND: "initrwnd",
	unix.RTAX_QUICKACK: "quickack", unix.RTAX_CC_ALGO: "congctl", unix.RTAX_FASTOPEN_NO_COOKIE: "fastopen_no_cookie",
}

// metrics renders RTA_METRICS. Times are the kernel's numbers: eighths of a
// millisecond for rtt, quarters for rttvar.
func metrics(w *words, b []byte) {
	locked := number(Find(b, unix.RTAX_LOCK))
	for m := range Attrs(b) {
		name, ok := metricNames[m.Type]
		switch {
		case m.Type == unix.RTAX_LOCK:
			continue
		case !ok:
			w.unknown(m)
			continue
		}
		w.add(name)
		if locked&(1<<m.Type) != 0 {
			w.add("lock")
		}
		if m.Type == unix.RTAX_CC_ALGO {
			w.add(m.String())
		} else {
			w.add(fmt.Sprint(m.Uint32()))
		}
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
