package rtnl

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Actions of a rule (FR_ACT_*), which x/sys lacks by value.
var ruleActions = map[uint8]string{2: "goto", 3: "nop", 6: "blackhole", 7: "unreachable", 8: "prohibit"}

const ruleToTable = 1

// fraDSCP is FRA_DSCP (6.13), which x/sys lacks.
const fraDSCP = 25

// RuleText renders a dumped policy rule in full; it is the rule's identity.
func RuleText(m []byte) string {
	var w words
	if m[0] == unix.AF_INET6 {
		w.add("inet6")
	}
	pref, from, to, tab := uint32(0), "all", "", uint32(m[4])
	var rest words
	for a := range Attrs(m[SizeofRuleHdr:]) {
		switch a.Type {
		case unix.FRA_PRIORITY:
			pref = a.Uint32()
		case unix.FRA_SRC:
			from = prefix(a.Value, m[2])
		case unix.FRA_DST:
			to = prefix(a.Value, m[1])
		case unix.FRA_TABLE:
			tab = a.Uint32()
		default:
			ruleAttr(&rest, a)
		}
	}
	w.num("pref", pref)
	if binary.NativeEndian.Uint32(m[8:])&unix.FIB_RULE_INVERT != 0 {
		w.add("not")
	}
	w.add("from", from)
	if to != "" {
		w.add("to", to)
	}
	if m[3] != 0 {
		w.add("tos", fmt.Sprintf("%#02x", m[3]))
	}
	w = append(w, rest...)
	switch act, ok := ruleActions[m[7]]; {
	case m[7] == ruleToTable:
		w.add("lookup", table(tab))
	case ok:
		w.add(act)
	default:
		w.add(fmt.Sprintf("action %d", m[7]))
	}
	return w.String()
}

func ipProtocol(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	switch b[0] {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_ICMPV6:
		return "ipv6-icmp"
	}
	return fmt.Sprint(b[0])
}

func ruleAttr(w *words, a Attr) {
	switch a.Type {
	case unix.FRA_IIFNAME:
		w.add("iif", a.String())
	case unix.FRA_OIFNAME:
		w.add("oif", a.String())
	case unix.FRA_FWMARK:
		if v := a.Uint32(); v != 0 {
			w.add("fwmark", fmt.Sprintf("%#x", v))
		}
	case unix.FRA_FWMASK:
		if v := a.Uint32(); v != ^uint32(0) && v != 0 {
			w.add("mask", fmt.Sprintf("%#x", v))
		}
	case unix.FRA_SUPPRESS_PREFIXLEN:
		if v := a.Uint32(); v != ^uint32(0) {
			w.num("suppress_prefixlength", v)
		}
	case unix.FRA_SUPPRESS_IFGROUP:
		if v := a.Uint32(); v != ^uint32(0) {
			w.num("suppress_ifgroup", v)
		}
	case unix.FRA_GOTO:
		w.num("goto", a.Uint32())
	case unix.FRA_UID_RANGE:
		if len(a.Value) >= 8 {
			w.add("uidrange", fmt.Sprintf("%d-%d", number(a.Value), number(a.Value[4:])))
		}
	case unix.FRA_IP_PROTO:
		w.add("ipproto", ipProtocol(a.Value))
	case unix.FRA_SPORT_RANGE, unix.FRA_DPORT_RANGE:
		if len(a.Value) >= 4 {
			word := map[bool]string{true: "sport", false: "dport"}[a.Type == unix.FRA_SPORT_RANGE]
			w.add(word, fmt.Sprintf("%d-%d", binary.NativeEndian.Uint16(a.Value), binary.NativeEndian.Uint16(a.Value[2:])))
		}
	case unix.FRA_L3MDEV:
		w.add("l3mdev")
	case unix.FRA_TUN_ID:
		if len(a.Value) >= 8 {
			w.add("tun_id", fmt.Sprint(binary.BigEndian.Uint64(a.Value)))
		}
	case unix.FRA_FLOW:
		w.add("realms", fmt.Sprintf("%d/%d", a.Uint32()>>16, a.Uint32()&0xffff))
	case fraDSCP:
		w.add("dscp", fmt.Sprintf("%#x", a.Value))
	case unix.FRA_PROTOCOL:
		if len(a.Value) > 0 && a.Value[0] != unix.RTPROT_UNSPEC && a.Value[0] != unix.RTPROT_KERNEL {
			w.add("protocol", protocol(a.Value[0]))
		}
	default:
		w.unknown(a)
	}
}
