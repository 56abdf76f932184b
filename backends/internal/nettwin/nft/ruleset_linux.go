package nft

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// Item is one object of a ruleset. Text has neither handles nor counters nor
// lifetimes, so it is the same in two readings between which nobody changed it.
type Item struct {
	Key  string // "chain inet filter input"
	Text string
	// Left is how long the object lives by itself. 0: until it is deleted.
	Left time.Duration
}

// Attributes and flags that x/sys lacks.
const (
	tableUserdata = 6
	tableOwnerID  = 7
	chainFlags    = 10
	setHandle     = 16
	setCount      = 20
	elemExprs     = 11
	flowtableName = 2
	flowtableUse  = 4
	flowtableID   = 5
	objHandle     = 6
)

// Ruleset reads every table of the namespace ns but those that the socket of
// skip owns (skip may be nil). A kernel without nf_tables has no items.
func Ruleset(ns int, skip *Table) ([]Item, error) {
	raw, err := Read(ns)
	if err != nil {
		return nil, err
	}
	var r reading
	for _, t := range raw.tables {
		if !t.owned(skip) {
			r.table(t)
		}
	}
	return r.items, nil
}

// reading puts a ruleset into words.
type reading struct{ items []Item }

func (r *reading) add(key, text string) {
	r.items = append(r.items, Item{Key: key, Text: strings.TrimSpace(text)})
}

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

// owned reports whether a table's owner is the socket of t.
func (o object) owned(t *Table) bool {
	return t != nil && t.Owned && o.num(tableOwnerID) == t.port || t != nil && !t.Owned && o.family == unix.NFPROTO_INET && o.str(unix.NFTA_TABLE_NAME) == t.name
}

func (r *reading) table(t *rawTable) {
	text := ""
	if f := t.num(unix.NFTA_TABLE_FLAGS); f != 0 {
		text = fmt.Sprintf("flags %#x", f)
	}
	if u := rtnl.Find(t.attrs, tableUserdata); len(u) > 0 {
		text += comment(u)
	}
	r.add("table "+t.String(), text)
	for _, c := range t.chains {
		r.chain(t, c)
	}
	for _, s := range t.sets {
		r.set(t, s)
	}
	for _, o := range t.objects {
		r.add("object "+t.String()+" "+o.str(unix.NFTA_OBJ_NAME), objectText(o))
	}
	for _, o := range t.flowtables {
		r.add("flowtable "+t.String()+" "+o.str(flowtableName), o.rest(inTable, flowtableName, flowtableUse, flowtableID))
	}
}

// chain says of a chain how many rules it has and, by a digest, in which order:
// a rule that only moved is a difference too.
func (r *reading) chain(t *rawTable, o object) {
	name := o.str(unix.NFTA_CHAIN_NAME)
	key := t.String() + " " + name
	h := sha256.New()
	for _, rule := range t.rules[name] {
		text, sum := ruleText(t.family, rtnl.Find(rule.attrs, unix.NFTA_RULE_EXPRESSIONS))
		if u := rtnl.Find(rule.attrs, unix.NFTA_RULE_USERDATA); len(u) > 0 {
			text += comment(u)
		}
		fmt.Fprintln(h, sum)
		r.add("rule "+key, text)
	}
	var w []string
	if hook := o.nest(unix.NFTA_CHAIN_HOOK); hook.attrs != nil {
		w = append(w, fmt.Sprintf("type %s hook %s priority %d", o.str(unix.NFTA_CHAIN_TYPE),
			hookName(t.family, hook.num(unix.NFTA_HOOK_HOOKNUM)), int32(hook.num(unix.NFTA_HOOK_PRIORITY))))
		for _, d := range devices(hook) {
			w = append(w, "device "+d)
		}
		w = append(w, "policy "+verdictName(o.num(unix.NFTA_CHAIN_POLICY)))
	}
	if f := o.num(chainFlags); f > 1 { // 1 is "a base chain"
		w = append(w, fmt.Sprintf("flags %#x", f))
	}
	many := "rules"
	if len(t.rules[name]) == 1 {
		many = "rule"
	}
	w = append(w, fmt.Sprintf("{ %d %s #%.4x }", len(t.rules[name]), many, h.Sum(nil)))
	r.add("chain "+key, strings.Join(w, " "))
}

// devices lists the interfaces of a hook.
func devices(hook object) []string {
	const hookDevs = 4 // NFTA_HOOK_DEVS, which lists also the one of NFTA_HOOK_DEV
	var out []string
	for d := range rtnl.Attrs(rtnl.Find(hook.attrs, hookDevs)) {
		out = append(out, d.String())
	}
	if d := hook.str(unix.NFTA_HOOK_DEV); len(out) == 0 && d != "" {
		out = append(out, d)
	}
	slices.Sort(out)
	return out
}

func (r *reading) set(t *rawTable, s rawSet) {
	text := s.rest(unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, unix.NFTA_SET_ID, setHandle, setCount)
	// The rules themselves fill a dynamic set, packet by packet.
	if s.num(unix.NFTA_SET_FLAGS)&unix.NFT_SET_EVAL == 0 {
		var es []string
		for _, e := range s.elements {
			if left := lifetime(e); left > 0 {
				r.items = append(r.items, Item{"element " + t.String() + " " + s.name, elementText(e), left})
				continue
			}
			es = append(es, elementSum(e))
		}
		slices.Sort(es) // a hash table has no order
		text += fmt.Sprintf(" { %d elements #%.4x }", len(es), sha256.Sum256([]byte(strings.Join(es, "\n"))))
	}
	r.add("set "+t.String()+" "+s.name, text)
}

// elementSum is an element without its age and what it counts.
func elementSum(e []byte) string {
	return digest(e, unix.NFTA_SET_ELEM_EXPIRATION, unix.NFTA_SET_ELEM_EXPR, elemExprs)
}

func elementText(e []byte) string {
	return valueText(object{attrs: e}.value(unix.NFTA_SET_ELEM_KEY)) + " " + elementSum(e)
}

// lifetime is what is left of an element's.
func lifetime(e []byte) time.Duration {
	b := rtnl.Find(e, unix.NFTA_SET_ELEM_EXPIRATION)
	if len(b) < 8 {
		return 0
	}
	return time.Duration(min(binary.BigEndian.Uint64(b), 1<<43)) * time.Millisecond // 278 years
}

// objectText leaves out what counters and quotas count.
func objectText(o object) string {
	sum := o.rest(inTable, unix.NFTA_OBJ_NAME, unix.NFTA_OBJ_DATA, unix.NFTA_OBJ_USE, objHandle)
	switch data := o.nest(unix.NFTA_OBJ_DATA); o.num(unix.NFTA_OBJ_TYPE) {
	case unix.NFT_OBJECT_COUNTER:
		return sum
	case unix.NFT_OBJECT_QUOTA:
		return sum + data.rest(quotaConsumed)
	default:
		return sum + data.rest()
	}
}

// quotaConsumed is NFTA_QUOTA_CONSUMED: what was used.
const quotaConsumed = 4
