package nft

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

func familyName(f byte) string {
	switch f {
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_IPV6:
		return "ip6"
	case unix.NFPROTO_ARP:
		return "arp"
	case unix.NFPROTO_BRIDGE:
		return "bridge"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	}
	return fmt.Sprint(f)
}

func verdictName(v uint32) string {
	switch int32(v) {
	case 0:
		return "drop"
	case 1:
		return "accept"
	case 3:
		return "queue"
	case unix.NFT_CONTINUE:
		return "continue"
	case unix.NFT_BREAK:
		return "break"
	case unix.NFT_JUMP:
		return "jump"
	case unix.NFT_GOTO:
		return "goto"
	case unix.NFT_RETURN:
		return "return"
	}
	return fmt.Sprint(int32(v))
}

// ruleText renders a rule expression by expression, as the kernel holds it. It
// is no text that nft(8) reads back, but it names what a person looks for:
// fields, sets, matches and verdicts. The digest covers what the text leaves out.
func ruleText(family byte, list []byte) (text, sum string) {
	var words, sums []string
	of := "" // what was loaded last
	for e := range rtnl.Attrs(list) {
		name, _, _ := strings.Cut(string(rtnl.Find(e.Value, unix.NFTA_EXPR_NAME)), "\x00")
		o := object{attrs: rtnl.Find(e.Value, unix.NFTA_EXPR_DATA)}
		t := exprText(family, name, o, of)
		words, of = append(words, t), t
		switch name {
		case "counter", "last", "quota": // hold what was counted
			sums = append(sums, t)
		default:
			sums = append(sums, name+o.rest())
		}
	}
	return strings.Join(words, " "), strings.Join(sums, " ")
}

var (
	cmpOps      = []string{"==", "!=", "<", "<=", ">", ">="}
	payloadBase = []string{"link", "network", "transport", "inner"}
	metaKeys    = map[uint32]string{
		1: "protocol", 3: "mark", 4: "iif", 5: "oif", 6: "iifname", 7: "oifname", 10: "skuid", 11: "skgid", 15: "nfproto", 16: "l4proto",
	}
)

func exprText(family byte, name string, o object, of string) string {
	switch name {
	case "counter", "last":
		return name
	case "quota": // its second number is what was used
		return "quota " + o.rest(quotaConsumed)
	case "immediate":
		return immediateText(object{attrs: rtnl.Find(o.attrs, unix.NFTA_IMMEDIATE_DATA)})
	case "cmp":
		data := object{attrs: rtnl.Find(o.attrs, unix.NFTA_CMP_DATA)}
		return word(cmpOps, o.num(unix.NFTA_CMP_OP)) + " " + fieldValue(of, rtnl.Find(data.attrs, unix.NFTA_DATA_VALUE))
	case "payload":
		f := field{o.num(unix.NFTA_PAYLOAD_BASE), o.num(unix.NFTA_PAYLOAD_OFFSET), o.num(unix.NFTA_PAYLOAD_LEN)}
		return fieldName(family, f) + written(o, unix.NFTA_PAYLOAD_SREG)
	case "meta":
		key := o.num(unix.NFTA_META_KEY)
		if k := metaKeys[key]; k != "" {
			return k + written(o, unix.NFTA_META_SREG)
		}
		return fmt.Sprintf("meta %d", key) + written(o, unix.NFTA_META_SREG)
	case "lookup":
		const inverted = 1
		if o.num(unix.NFTA_LOOKUP_FLAGS)&inverted != 0 {
			return "!= @" + o.str(unix.NFTA_LOOKUP_SET)
		}
		return "@" + o.str(unix.NFTA_LOOKUP_SET)
	case "match", "target": // of iptables; the name is attribute 1 of both
		return o.str(1) + " " + o.rest(1)
	}
	return name + " " + o.rest()
}

func immediateText(data object) string {
	if v := rtnl.Find(data.attrs, unix.NFTA_DATA_VERDICT); v != nil {
		o := object{attrs: v}
		return strings.TrimSpace(verdictName(o.num(unix.NFTA_VERDICT_CODE)) + " " + o.str(unix.NFTA_VERDICT_CHAIN))
	}
	return "set " + valueText(rtnl.Find(data.attrs, unix.NFTA_DATA_VALUE))
}

// written marks an expression that sets its field from a register.
func written(o object, sreg uint16) string {
	if o.num(sreg) != 0 {
		return " set"
	}
	return ""
}

// valueText renders a value in hex, or in decimal where it has the size of a
// port or a protocol.
func valueText(b []byte) string {
	switch len(b) {
	case 1:
		return fmt.Sprint(b[0])
	case 2:
		return fmt.Sprint(binary.BigEndian.Uint16(b))
	}
	if s := strings.TrimRight(string(b), "\x00"); len(s) > 1 && len(s) < len(b) && printable(s) {
		return `"` + s + `"` // the name of an interface
	}
	return fmt.Sprintf("0x%x", b)
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// comment renders what nft(8) hid in a rule's user data: type, length, text.
func comment(u []byte) string {
	const typeComment = 0
	if len(u) > 2 && u[0] == typeComment && int(u[1]) == len(u)-2 {
		return ` comment "` + strings.TrimRight(string(u[2:]), "\x00") + `"`
	}
	return fmt.Sprintf(" userdata %x", u)
}

func word(ws []string, i uint32) string {
	if int(i) < len(ws) {
		return ws[i]
	}
	return fmt.Sprint(i)
}
