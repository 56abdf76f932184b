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
}

// Flags by which tables and chains do what nobody can do for another namespace,
// or a TAP cannot do: x/sys lacks them.
const (
	tableDormant     = 0x1
	chainBase        = 0x1
	chainOffload     = 0x2
	chainBinding     = 0x4
	flowtableOffload = 0x1
	flowtableFlags   = 7
)

// steps are the messages that make a table, each after those it needs: rules
// name sets, verdict maps name chains, object maps name objects.
func (t *rawTable) steps(links map[int]int) []step {
	b := builder{t: t, links: links, anonymous: map[string]bool{}, done: map[string]bool{}}
	b.table()
	for _, c := range t.chains {
		b.chain(c)
	}
	for _, o := range t.objects {
		b.add("object", o.str(unix.NFTA_OBJ_NAME), step{typ: unix.NFT_MSG_NEWOBJ, flags: unix.NLM_F_CREATE,
			attrs: keep(o.attrs, inTable, unix.NFTA_OBJ_NAME, unix.NFTA_OBJ_TYPE, unix.NFTA_OBJ_DATA, objUserdata)})
	}
	for i, s := range t.sets {
		b.set(s, uint32(i+1))
	}
	for _, o := range t.flowtables {
		a := keep(o.attrs, inTable, flowtableName, flowtableHook)
		if f := o.num(flowtableFlags) &^ flowtableOffload; f != 0 {
			a = appendNumber(a, flowtableFlags, f)
		}
		b.add("flowtable", o.str(flowtableName), step{typ: unix.NFT_MSG_NEWFLOWTABLE, flags: unix.NLM_F_CREATE, attrs: a})
	}
	b.rules()
	return b.out
}

// builder makes the steps of one table.
type builder struct {
	t         *rawTable
	links     map[int]int
	out       []step
	anonymous map[string]bool // chains that end with the rule that jumps to them
	done      map[string]bool // chains whose rules are there
}

func (b *builder) add(kind, name string, s step) {
	s.family = b.t.family
	s.what = fmt.Sprintf("nftables %s %s %s", kind, b.t, name)
	b.out = append(b.out, s)
}

// table makes a table that has no owner: it would vanish with our socket.
func (b *builder) table() {
	a := keep(b.t.attrs, unix.NFTA_TABLE_NAME, tableUserdata)
	if f := b.t.num(unix.NFTA_TABLE_FLAGS) & tableDormant; f != 0 {
		a = appendNumber(a, unix.NFTA_TABLE_FLAGS, f)
	}
	b.out = append(b.out, step{
		typ: unix.NFT_MSG_NEWTABLE, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, family: b.t.family, attrs: a,
		what: "nftables table " + b.t.String(),
	})
}

func (b *builder) chain(o object) {
	a := keep(o.attrs, inTable, unix.NFTA_CHAIN_NAME, unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_TYPE, unix.NFTA_CHAIN_POLICY,
		unix.NFTA_CHAIN_COUNTERS, chainUserdata)
	b.anonymous[o.str(unix.NFTA_CHAIN_NAME)] = o.num(chainFlags)&chainBinding != 0
	// A hook makes the chain a base chain; a TAP has no hardware to offload to.
	if f := o.num(chainFlags) &^ (chainBase | chainOffload); f != 0 {
		a = appendNumber(a, chainFlags, f)
	}
	b.add("chain", o.str(unix.NFTA_CHAIN_NAME), step{typ: unix.NFT_MSG_NEWCHAIN, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, attrs: a})
}

// attributes of a set that the kernel does not tell by itself.
var setAttrs = []uint16{
	inTable, unix.NFTA_SET_NAME, unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN, unix.NFTA_SET_DATA_TYPE,
	unix.NFTA_SET_DATA_LEN, unix.NFTA_SET_POLICY, unix.NFTA_SET_DESC, unix.NFTA_SET_TIMEOUT, unix.NFTA_SET_GC_INTERVAL,
	unix.NFTA_SET_USERDATA, unix.NFTA_SET_OBJ_TYPE, setExpr, setExprs,
}

// Attributes of sets and their elements, and flags of sets, that x/sys lacks.
const (
	setExpr   = 17
	setExprs  = 18
	elemPad   = 8
	setConcat = 0x80
)

func (b *builder) set(s rawSet, id uint32) {
	a := appendNumber(keep(s.attrs, setAttrs...), unix.NFTA_SET_ID, id) // it is asked for, and needed only where names are made up
	b.add("set", s.name, step{typ: unix.NFT_MSG_NEWSET, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, attrs: a})
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
		e := keep(s.attrs, inTable)
		e = append(e, rtnl.AppendString(nil, unix.NFTA_SET_ELEM_LIST_SET, s.name)...)
		e = rtnl.Append(e, unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, list)
		b.out = append(b.out, step{
			typ: unix.NFT_MSG_NEWSETELEM, flags: unix.NLM_F_CREATE, family: b.t.family, attrs: e,
			what: fmt.Sprintf("part of nftables set %s %s", b.t, s.name),
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
		a := keep(o.attrs, inTable, unix.NFTA_RULE_CHAIN, unix.NFTA_RULE_USERDATA)
		if len(b.links) > 0 {
			list = relinked(list, b.links)
		}
		a = rtnl.Append(a, unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, sendable(list))
		a = append(a, compat(b.t.family, list)...)
		b.add("rule in chain", chain, step{
			typ: unix.NFT_MSG_NEWRULE, flags: unix.NLM_F_CREATE | unix.NLM_F_APPEND, attrs: a, owner: ownersOnly(list),
		})
	}
}

// keep copies the attributes of some types.
func keep(attrs []byte, types ...uint16) []byte {
	return filter(attrs, func(t uint16) bool { return slices.Contains(types, t) })
}

// drop copies all attributes but those of one type.
func drop(attrs []byte, typ uint16) []byte {
	return filter(attrs, func(t uint16) bool { return t != typ })
}

func filter(attrs []byte, want func(uint16) bool) []byte {
	out := make([]byte, 0, len(attrs)+16)
	for a := range rtnl.Attrs(attrs) {
		if want(a.Type) {
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
