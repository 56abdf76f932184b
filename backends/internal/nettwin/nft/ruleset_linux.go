package nft

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// Item is one object of a ruleset. Text has neither handles nor counters nor
// lifetimes, so it is the same in two readings between which nobody changed it.
type Item struct {
	Key  string // "chain inet filter input"
	Text string
}

// Attributes and flags that x/sys lacks.
const (
	tableUserdata = 6
	tableOwnerID  = 7
	chainFlags    = 10
	setHandle     = 16
	setCount      = 20
	flowtableUse  = 4
	flowtableID   = 5
	objHandle     = 6
)

// Ruleset reads every table of the namespace ns but those that the socket of
// skip owns (skip may be nil). A kernel without nf_tables has no items.
func Ruleset(ns int, skip *Table) ([]Item, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns})
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("dial nf_tables: %w", err)
	}
	defer c.Close()
	r := reading{c: c, ours: map[string]bool{}, rules: map[string][]string{}}
	for _, step := range []func() error{func() error { return r.tables(skip) }, r.readRules, r.chains, r.sets, r.others} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("read nftables ruleset: %w", err)
		}
	}
	return r.items, nil
}

// reading is one pass over a ruleset.
type reading struct {
	c     *netlink.Conn
	ours  map[string]bool     // tables left out, by family and name
	rules map[string][]string // digests by chain, in order
	items []Item
}

func (r *reading) add(key, text string) {
	r.items = append(r.items, Item{key, strings.TrimSpace(text)})
}

// object is one dumped message.
type object struct {
	family byte
	attrs  []byte
}

func (o object) str(typ uint16) string {
	s, _, _ := strings.Cut(string(rtnl.Find(o.attrs, typ)), "\x00")
	return s
}

func (o object) num(typ uint16) uint32 {
	b := rtnl.Find(o.attrs, typ)
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// in is "inet filter", the family and table of the object.
func (o object) in(table uint16) string { return familyName(o.family) + " " + o.str(table) }

// rest is a digest of all attributes but some: what this package has no words
// for still counts.
func (o object) rest(but ...uint16) string { return digest(o.attrs, but...) }

func digest(attrs []byte, but ...uint16) string {
	h := sha256.New()
	for a := range rtnl.Attrs(attrs) {
		if !slices.Contains(but, a.Type) {
			fmt.Fprintf(h, "%d:%d:", a.Type, len(a.Value))
			h.Write(a.Value)
		}
	}
	return fmt.Sprintf("#%.4x", h.Sum(nil))
}

func (r *reading) dump(typ int, attrs func(*netlink.AttributeEncoder)) ([]object, error) {
	m, err := message(typ, int(netlink.Dump), unix.NFPROTO_UNSPEC, attrs)
	if err != nil {
		return nil, err
	}
	return r.ask(m)
}

func (r *reading) ask(m netlink.Message) ([]object, error) {
	// A dump during which the ruleset changed is marked, and useless.
	for range 8 {
		ms, err := r.c.Execute(m)
		if err != nil {
			return nil, errno(err)
		}
		var out []object
		torn := false
		for _, a := range ms {
			torn = torn || a.Header.Flags&netlink.DumpInterrupted != 0
			if len(a.Data) >= headerSize {
				out = append(out, object{a.Data[0], a.Data[headerSize:]})
			}
		}
		if !torn {
			return out, nil
		}
	}
	return nil, unix.EAGAIN
}

// owned reports whether a table's owner is the socket of t.
func (o object) owned(t *Table) bool {
	return t != nil && t.Owned && o.num(tableOwnerID) == t.port || t != nil && !t.Owned && o.family == unix.NFPROTO_INET && o.str(unix.NFTA_TABLE_NAME) == t.name
}

func (r *reading) tables(skip *Table) error {
	os, err := r.dump(unix.NFT_MSG_GETTABLE, nil)
	if err != nil {
		return err
	}
	for _, o := range os {
		name := o.in(unix.NFTA_TABLE_NAME)
		if o.owned(skip) {
			r.ours[name] = true
			continue
		}
		text := ""
		if f := o.num(unix.NFTA_TABLE_FLAGS); f != 0 {
			text = fmt.Sprintf("flags %#x", f)
		}
		if u := rtnl.Find(o.attrs, tableUserdata); len(u) > 0 {
			text += comment(u)
		}
		r.add("table "+name, text)
	}
	return nil
}

func (r *reading) readRules() error {
	os, err := r.dump(unix.NFT_MSG_GETRULE, nil)
	if err != nil {
		return err
	}
	for _, o := range os {
		if r.ours[o.in(unix.NFTA_RULE_TABLE)] {
			continue
		}
		key := o.in(unix.NFTA_RULE_TABLE) + " " + o.str(unix.NFTA_RULE_CHAIN)
		text, sum := ruleText(rtnl.Find(o.attrs, unix.NFTA_RULE_EXPRESSIONS))
		if u := rtnl.Find(o.attrs, unix.NFTA_RULE_USERDATA); len(u) > 0 {
			text += comment(u)
		}
		r.rules[key] = append(r.rules[key], sum)
		r.add("rule "+key, text)
	}
	return nil
}

// chains says of each chain how many rules it has and, by a digest, in which
// order: a rule that only moved is a difference too.
func (r *reading) chains() error {
	os, err := r.dump(unix.NFT_MSG_GETCHAIN, nil)
	if err != nil {
		return err
	}
	for _, o := range os {
		if r.ours[o.in(unix.NFTA_CHAIN_TABLE)] {
			continue
		}
		key := o.in(unix.NFTA_CHAIN_TABLE) + " " + o.str(unix.NFTA_CHAIN_NAME)
		var w []string
		if hook := rtnl.Find(o.attrs, unix.NFTA_CHAIN_HOOK); hook != nil {
			h := object{o.family, hook}
			w = append(w, fmt.Sprintf("type %s hook %d priority %d", o.str(unix.NFTA_CHAIN_TYPE),
				h.num(unix.NFTA_HOOK_HOOKNUM), int32(h.num(unix.NFTA_HOOK_PRIORITY))))
			if d := h.str(unix.NFTA_HOOK_DEV); d != "" {
				w = append(w, "device "+d)
			}
			w = append(w, "policy "+verdictName(o.num(unix.NFTA_CHAIN_POLICY)))
		}
		if f := o.num(chainFlags); f > 1 { // 1 is "a base chain"
			w = append(w, fmt.Sprintf("flags %#x", f))
		}
		rules := r.rules[key]
		sum := sha256.Sum256([]byte(strings.Join(rules, "\n")))
		w = append(w, fmt.Sprintf("{ %d rules #%.4x }", len(rules), sum))
		r.add("chain "+key, strings.Join(w, " "))
	}
	return nil
}

func (r *reading) sets() error {
	os, err := r.dump(unix.NFT_MSG_GETSET, nil)
	if err != nil {
		return err
	}
	for _, o := range os {
		table := o.in(unix.NFTA_SET_TABLE)
		if r.ours[table] {
			continue
		}
		text := o.rest(unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, setHandle, setCount)
		// The rules themselves fill a dynamic set, packet by packet.
		if o.num(unix.NFTA_SET_FLAGS)&unix.NFT_SET_EVAL == 0 {
			es, err := r.elements(o)
			if err != nil {
				return err
			}
			sum := sha256.Sum256([]byte(strings.Join(es, "\n")))
			text += fmt.Sprintf(" { %d elements #%.4x }", len(es), sum)
		}
		r.add("set "+table+" "+o.str(unix.NFTA_SET_NAME), text)
	}
	return nil
}

// elements of a set, sorted: a hash table has no order.
func (r *reading) elements(set object) ([]string, error) {
	m, err := message(unix.NFT_MSG_GETSETELEM, int(netlink.Dump), set.family, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_SET_ELEM_LIST_TABLE, set.str(unix.NFTA_SET_TABLE))
		ae.String(unix.NFTA_SET_ELEM_LIST_SET, set.str(unix.NFTA_SET_NAME))
	})
	if err != nil {
		return nil, err
	}
	os, err := r.ask(m)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // the set went away meanwhile
	}
	var out []string
	for _, o := range os {
		for e := range rtnl.Attrs(rtnl.Find(o.attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			const expressions = 11 // NFTA_SET_ELEM_EXPRESSIONS: counters
			out = append(out, digest(e.Value, unix.NFTA_SET_ELEM_EXPIRATION, unix.NFTA_SET_ELEM_EXPR, expressions))
		}
	}
	slices.Sort(out)
	return out, err
}

// others are stateful objects and flowtables.
func (r *reading) others() error {
	os, err := r.dump(unix.NFT_MSG_GETOBJ, nil)
	if err != nil {
		return err
	}
	for _, o := range os {
		if table := o.in(unix.NFTA_OBJ_TABLE); !r.ours[table] {
			// The data of counters and quotas moves with the traffic.
			r.add("object "+table+" "+o.str(unix.NFTA_OBJ_NAME), o.rest(unix.NFTA_OBJ_TABLE, unix.NFTA_OBJ_NAME, unix.NFTA_OBJ_DATA, unix.NFTA_OBJ_USE, objHandle))
		}
	}
	if os, err = r.dump(unix.NFT_MSG_GETFLOWTABLE, nil); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	for _, o := range os {
		if table := o.in(1); !r.ours[table] { // NFTA_FLOWTABLE_TABLE, _NAME
			r.add("flowtable "+table+" "+o.str(2), o.rest(1, 2, flowtableUse, flowtableID))
		}
	}
	return nil
}
