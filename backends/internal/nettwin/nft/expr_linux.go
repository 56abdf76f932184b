package nft

import (
	"encoding/binary"
	"errors"
	"iter"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// expressions walks the expressions of a rule: name and attributes.
func expressions(list []byte) iter.Seq2[string, object] {
	return func(yield func(string, object) bool) {
		for e := range rtnl.Attrs(list) {
			o := object{attrs: e.Value}
			if !yield(o.str(unix.NFTA_EXPR_NAME), o.nest(unix.NFTA_EXPR_DATA)) {
				return
			}
		}
	}
}

// verdict reads the verdict in a value: the chain it names, if any, and its code.
func (o object) verdict(typ uint16) (chain string, code int32) {
	v := o.nest(typ).nest(unix.NFTA_DATA_VERDICT)
	return v.str(unix.NFTA_VERDICT_CHAIN), int32(v.num(unix.NFTA_VERDICT_CODE))
}

// value reads the bytes in a value.
func (o object) value(typ uint16) []byte {
	return rtnl.Find(rtnl.Find(o.attrs, typ), unix.NFTA_DATA_VALUE)
}

// extensions names the matches and targets of iptables in a rule.
func extensions(s step) string {
	var out []string
	if s.typ == unix.NFT_MSG_NEWRULE {
		for name, e := range expressions(rtnl.Find(s.attrs, unix.NFTA_RULE_EXPRESSIONS)) {
			if name == "match" || name == "target" {
				out = append(out, "iptables "+name+" "+e.str(unix.NFTA_MATCH_NAME))
			}
		}
	}
	return strings.Join(out, ", ")
}

// uses lists the sets and chains that a rule names.
func uses(s step) []string {
	if s.typ != unix.NFT_MSG_NEWRULE {
		return nil
	}
	var out []string
	for name, e := range expressions(rtnl.Find(s.attrs, unix.NFTA_RULE_EXPRESSIONS)) {
		switch name {
		case "lookup":
			out = append(out, e.str(unix.NFTA_LOOKUP_SET))
		case "dynset":
			out = append(out, e.str(unix.NFTA_DYNSET_SET_NAME))
		case "objref":
			out = append(out, e.str(unix.NFTA_OBJREF_SET_NAME))
		case "immediate":
			chain, _ := e.verdict(unix.NFTA_IMMEDIATE_DATA)
			out = append(out, chain)
		}
	}
	return out
}

// errGlobal is why a rule with a global target is not loaded.
var errGlobal = errors.New("it acts on the whole machine")

// global reports whether a rule has a target that does.
func global(list []byte) bool {
	for name, e := range expressions(list) {
		if name == "target" && (Extension{Name: e.str(unix.NFTA_TARGET_NAME)}).Global() {
			return true
		}
	}
	return false
}

// ownersOnly reports whether a rule compares ids by the owner match of iptables.
// The kernel takes it from nobody outside the user namespace that owns the
// network namespace, and then compares the ids that are seen there; nftables'
// own skuid and skgid do the same and may come from anybody (seen on 6.18).
func ownersOnly(list []byte) bool {
	for name, e := range expressions(list) {
		if name == "match" && e.str(unix.NFTA_MATCH_NAME) == "owner" {
			return true
		}
	}
	return false
}

// Keys of expressions.
const (
	metaProtocol = 1
	metaMark     = 3
	metaIIF      = 4
	metaOIF      = 5
	metaSKUID    = 10
	metaSKGID    = 11
	metaL4Proto  = 16
	metaCgroup   = 23
)

// compat is NFTA_RULE_COMPAT, which the kernel wants with matches and targets of
// iptables and does not dump: the protocol that the rule has compared before,
// as multiport and REDIRECT ask what it is.
func compat(family byte, list []byte) []byte {
	const inverted = 0x2 // NFT_RULE_COMPAT_F_INV
	var proto, flags uint32
	found, loaded := false, false
	for name, e := range expressions(list) {
		switch {
		case name == "match" || name == "target":
			found = true
		case name == "cmp" && loaded:
			op := e.num(unix.NFTA_CMP_OP)
			if v := e.value(unix.NFTA_CMP_DATA); proto == 0 && (op == unix.NFT_CMP_EQ || op == unix.NFT_CMP_NEQ) {
				switch len(v) {
				case 1:
					proto = uint32(v[0])
				case 2: // of a frame; ebtables has it in the frame's order
					proto = uint32(binary.NativeEndian.Uint16(v))
				}
				if op == unix.NFT_CMP_NEQ {
					flags = inverted
				}
			}
		}
		loaded = loadsProtocol(family, name, e)
	}
	if !found {
		return nil
	}
	return rtnl.Append(nil, unix.NFTA_RULE_COMPAT|unix.NLA_F_NESTED,
		appendNumber(appendNumber(nil, unix.NFTA_RULE_COMPAT_PROTO, proto), unix.NFTA_RULE_COMPAT_FLAGS, flags))
}

// loadsProtocol reports whether an expression reads what iptables, or ebtables,
// calls the protocol.
func loadsProtocol(family byte, name string, e object) bool {
	key := e.num(unix.NFTA_META_KEY)
	at := [3]uint32{e.num(unix.NFTA_PAYLOAD_BASE), e.num(unix.NFTA_PAYLOAD_OFFSET), e.num(unix.NFTA_PAYLOAD_LEN)}
	switch {
	case family == unix.NFPROTO_BRIDGE:
		return name == "meta" && key == metaProtocol || name == "payload" && at == [3]uint32{unix.NFT_PAYLOAD_LL_HEADER, 12, 2}
	case name == "meta":
		return key == metaL4Proto
	case name == "payload" && family == unix.NFPROTO_IPV4:
		return at == [3]uint32{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1}
	case name == "payload" && family == unix.NFPROTO_IPV6:
		return at == [3]uint32{unix.NFT_PAYLOAD_NETWORK_HEADER, 6, 1}
	}
	return false
}

// dumpOnly says which attributes of an expression the kernel dumps and does not
// take back (seen on 6.18).
var dumpOnly = map[string]func(object) []uint16{
	"exthdr": func(e object) []uint16 {
		const offset, length, flags, sreg = 3, 4, 5, 7
		switch {
		case rtnl.Find(e.attrs, sreg) != nil: // "tcp option maxseg size set"
			return []uint16{flags}
		case rtnl.Find(e.attrs, unix.NFTA_EXTHDR_DREG) == nil: // "reset tcp option"
			return []uint16{offset, length, flags}
		}
		return nil
	},
	"osf": func(e object) []uint16 {
		const flags = 3
		if e.num(flags) == 0 { // given, it must ask for the version
			return []uint16{flags}
		}
		return nil
	},
}

// sendable copies the expressions of a rule without what is only dumped.
func sendable(list []byte) []byte {
	out := make([]byte, 0, len(list))
	for e := range rtnl.Attrs(list) {
		o := object{attrs: e.Value}
		data := o.nest(unix.NFTA_EXPR_DATA)
		var not []uint16
		if f := dumpOnly[o.str(unix.NFTA_EXPR_NAME)]; f != nil {
			not = f(data)
		}
		if not == nil {
			out = rtnl.Append(out, e.Type, e.Value)
			continue
		}
		v := rtnl.AppendString(nil, unix.NFTA_EXPR_NAME, o.str(unix.NFTA_EXPR_NAME))
		v = rtnl.Append(v, unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, drop(data.attrs, not...))
		out = rtnl.Append(out, e.Type, v)
	}
	return out
}
