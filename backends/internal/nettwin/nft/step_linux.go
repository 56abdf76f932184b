package nft

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// step is one message of a batch.
type step struct {
	typ, flags uint16
	family     byte
	attrs      []byte
	what       string // "nftables chain ip filter INPUT"
	owner      bool   // taken only from the owner of the namespace
	anonymous  string // the set or chain without a name that it is part of
}

// Flags that x/sys lacks. One that is not here goes along with the attribute.
const (
	tableDormant     = 0x1
	tablePersist     = 0x4
	chainBase        = 0x1
	chainOffload     = 0x2
	chainBinding     = 0x4
	flowtableOffload = 0x1
	setConcat        = 0x80
)

// Attributes that are only dumped, or mean another thing when they are sent.
const (
	tableHandle    = 4
	tablePad       = 5
	chainID        = 11
	rulePad        = 8
	ruleID         = 9
	setType        = 19
	elemPad        = 8
	objPad         = 7
	flowtablePad   = 6
	flowtableFlags = 7
)

// steps are the messages that make a table, each after those it needs: rules
// name sets, verdict maps name chains, object maps name objects.
func (t *rawTable) steps(links map[int]int) ([]step, []refusal) {
	b := builder{t: t, links: links, anonymous: map[string]bool{}, done: map[string]bool{}}
	b.table()
	for _, c := range t.chains {
		b.chain(c)
	}
	for _, o := range t.objects {
		b.add("object", o.str(unix.NFTA_OBJ_NAME), step{
			typ: unix.NFT_MSG_NEWOBJ, flags: unix.NLM_F_CREATE,
			attrs: drop(o.attrs, unix.NFTA_OBJ_USE, objHandle, objPad),
		})
	}
	for i, s := range t.sets {
		b.set(s, uint32(i+1))
	}
	for _, o := range t.flowtables {
		a := drop(o.attrs, flowtableUse, flowtableID, flowtablePad, flowtableFlags)
		if f := o.num(flowtableFlags) &^ flowtableOffload; f != 0 {
			a = appendNumber(a, flowtableFlags, f)
		}
		b.add("flowtable", o.str(flowtableName), step{typ: unix.NFT_MSG_NEWFLOWTABLE, flags: unix.NLM_F_CREATE, attrs: a})
	}
	b.rules()
	return b.out, b.left
}

// builder makes the steps of one table.
type builder struct {
	t         *rawTable
	links     map[int]int
	out       []step
	left      []refusal       // what is not even tried
	anonymous map[string]bool // chains that end with the rule that jumps to them
	done      map[string]bool // chains whose rules are there
}

func (b *builder) add(kind, name string, s step) {
	s.family = b.t.family
	if kind == "rule in chain" && b.anonymous[name] {
		s.anonymous = name
	}
	s.what = fmt.Sprintf("nftables %s %s %s", kind, b.t, name)
	b.out = append(b.out, s)
}

// table makes a table that has no owner: it would vanish with our socket.
func (b *builder) table() {
	a := drop(b.t.attrs, unix.NFTA_TABLE_FLAGS, unix.NFTA_TABLE_USE, tableHandle, tablePad, tableOwnerID)
	if f := b.t.num(unix.NFTA_TABLE_FLAGS) &^ (tableOwner | tablePersist); f != 0 {
		a = appendNumber(a, unix.NFTA_TABLE_FLAGS, f)
	}
	b.out = append(b.out, step{
		typ: unix.NFT_MSG_NEWTABLE, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, family: b.t.family, attrs: a,
		what: "nftables table " + b.t.String(),
	})
}

func (b *builder) chain(o object) {
	a := drop(o.attrs, unix.NFTA_CHAIN_HANDLE, unix.NFTA_CHAIN_USE, unix.NFTA_CHAIN_PAD, chainFlags, chainID)
	b.anonymous[o.str(unix.NFTA_CHAIN_NAME)] = o.num(chainFlags)&chainBinding != 0
	// A hook makes the chain a base chain; a TAP has no hardware to offload to.
	if f := o.num(chainFlags) &^ (chainBase | chainOffload); f != 0 {
		a = appendNumber(a, chainFlags, f)
	}
	s := step{typ: unix.NFT_MSG_NEWCHAIN, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, attrs: a}
	if name := o.str(unix.NFTA_CHAIN_NAME); b.anonymous[name] {
		s.anonymous = name
	}
	b.add("chain", o.str(unix.NFTA_CHAIN_NAME), s)
}

func (b *builder) set(s rawSet, id uint32) {
	// The number is asked for, and needed only where names are made up.
	a := appendNumber(drop(s.attrs, unix.NFTA_SET_ID, unix.NFTA_SET_PAD, setHandle, setType, setCount), unix.NFTA_SET_ID, id)
	anonymous := ""
	if s.num(unix.NFTA_SET_FLAGS)&unix.NFT_SET_ANONYMOUS != 0 {
		anonymous = s.name
	}
	b.add("set", s.name, step{typ: unix.NFT_MSG_NEWSET, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, attrs: a, anonymous: anonymous})
	elements := s.elements
	if f := s.num(unix.NFTA_SET_FLAGS); f&unix.NFT_SET_INTERVAL != 0 && f&setConcat == 0 {
		elements = ascending(elements)
	}
	if len(b.links) > 0 {
		elements = renumbered(s.object, elements, b.links)
	}
	for len(elements) > 0 {
		var list []byte
		for len(elements) > 0 && len(list)+len(elements[0]) < 32<<10 { // an attribute has at most 64 KiB
			list = rtnl.Append(list, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, drop(elements[0], elemPad))
			elements = elements[1:]
		}
		if len(list) == 0 {
			break // no element of the kernel's is so long
		}
		e := rtnl.AppendString(nil, unix.NFTA_SET_ELEM_LIST_TABLE, b.t.name)
		e = rtnl.AppendString(e, unix.NFTA_SET_ELEM_LIST_SET, s.name)
		e = rtnl.Append(e, unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, list)
		b.out = append(b.out, step{
			typ: unix.NFT_MSG_NEWSETELEM, flags: unix.NLM_F_CREATE, family: b.t.family, attrs: e,
			what: fmt.Sprintf("part of nftables set %s %s", b.t, s.name), anonymous: anonymous,
		})
	}
}

// ascending sorts the ends of intervals as nft(8) sends them: the kernel refuses
// an end whose beginning it has not seen.
func ascending(elements [][]byte) [][]byte {
	const end = unix.NFT_SET_ELEM_INTERVAL_END
	key := func(e []byte) []byte { return object{attrs: e}.nest(unix.NFTA_SET_ELEM_KEY).attrs }
	last := func(e []byte) int { return int(object{attrs: e}.num(unix.NFTA_SET_ELEM_FLAGS) & end) }
	return slices.SortedFunc(slices.Values(elements), func(x, y []byte) int {
		return cmp.Or(bytes.Compare(key(x), key(y)), cmp.Compare(last(y), last(x)))
	})
}

// rules appends the rules, in the order of each chain. An anonymous chain is
// closed by the rule that jumps to it, so its own rules come before.
func (b *builder) rules() {
	for _, c := range b.t.chains {
		b.rulesOf(c.str(unix.NFTA_CHAIN_NAME))
	}
}

func (b *builder) rulesOf(chain string) {
	if b.done[chain] {
		return
	}
	b.done[chain] = true
	for _, o := range b.t.rules[chain] {
		list := rtnl.Find(o.attrs, unix.NFTA_RULE_EXPRESSIONS)
		for name, e := range expressions(list) {
			if name == "immediate" {
				if to, _ := e.verdict(unix.NFTA_IMMEDIATE_DATA); b.anonymous[to] {
					b.rulesOf(to)
				}
			}
		}
		a := drop(o.attrs, unix.NFTA_RULE_HANDLE, unix.NFTA_RULE_EXPRESSIONS, unix.NFTA_RULE_COMPAT, unix.NFTA_RULE_POSITION, rulePad, ruleID)
		if len(b.links) > 0 {
			list = relinked(list, b.links)
		}
		a = rtnl.Append(a, unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, sendable(list))
		a = append(a, compat(b.t.family, list)...)
		b.add("rule in chain", chain, step{
			typ: unix.NFT_MSG_NEWRULE, flags: unix.NLM_F_CREATE | unix.NLM_F_APPEND, attrs: a, owner: ownersOnly(list),
		})
		if last := len(b.out) - 1; global(list) {
			b.left = append(b.left, refusal{b.out[last], errGlobal})
			b.out = b.out[:last]
		}
	}
}

// drop copies all attributes but those of some types: what this package does not
// know is taken along.
func drop(attrs []byte, types ...uint16) []byte {
	out := make([]byte, 0, len(attrs)+16)
	for a := range rtnl.Attrs(attrs) {
		if !slices.Contains(types, a.Type) {
			out = rtnl.Append(out, a.Type, a.Value)
		}
	}
	return out
}

// appendNumber adds a number, which nf_tables has in network order.
func appendNumber(b []byte, typ uint16, v uint32) []byte {
	return rtnl.Append(b, typ, binary.BigEndian.AppendUint32(nil, v))
}

// appendEdge adds the message that begins or ends a batch.
func appendEdge(b []byte, typ uint16, seq uint32) []byte {
	b = binary.NativeEndian.AppendUint32(b, unix.NLMSG_HDRLEN+headerSize)
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(b, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES) // res_id is big-endian
}
