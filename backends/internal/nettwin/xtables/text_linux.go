package xtables

import (
	"crypto/sha256"
	"fmt"
)

// Item is one chain. Text has no counters, so it is the same in two readings
// between which nobody changed it.
type Item struct {
	Key  string // "chain ip filter INPUT"
	Text string // "policy DROP { 3 rules #0a1b2c3d }"
}

// Chains reads the chains of the namespace ns. A table in which nothing was done
// is none: listing it makes it.
func Chains(ns int) ([]Item, error) {
	ts, err := Read(ns)
	if err != nil {
		return nil, err
	}
	var out []Item
	for _, t := range ts {
		if t.pristine() {
			continue
		}
		cs := t.chains()
		names := map[uint32]string{}
		for _, c := range cs {
			names[c.start] = c.name
		}
		for _, c := range cs {
			rules := c.rules
			if c.policy == "" && len(rules) > 0 {
				rules = rules[:len(rules)-1] // the return at the end of a chain of one's own
			}
			h := sha256.New()
			for _, e := range rules {
				h.Write(e.canonical(names))
			}
			text := fmt.Sprintf("{ %d rules #%.4x }", len(rules), h.Sum(nil))
			if c.policy != "" {
				text = "policy " + c.policy + " " + text
			}
			out = append(out, Item{"chain " + t.String() + " " + c.name, text})
		}
	}
	return out, nil
}

// canonical is an entry without what it counts and what the kernel notes in it,
// and with the name of the chain to which it jumps: the offset moves when
// another chain grows.
func (e entry) canonical(names map[uint32]string) []byte {
	// Addresses, interfaces and protocol stand before nfcache or the offsets.
	b := append([]byte{}, e.bytes[:e.family.offsets-nfcache(e.family)]...)
	for m := range e.matches() {
		b = fmt.Appendf(b, "match %q %d %x\n", m.Name, m.Revision, m.Data)
	}
	x := e.target()
	if v, ok := x.verdict(); ok {
		to := names[uint32(v)]
		switch {
		case v < 0:
			to = verdicts[v]
		case v == int32(e.at)+int32(len(e.bytes)):
			to = "the next rule" // no target
		}
		return fmt.Appendf(b, "verdict %q\n", to)
	}
	return fmt.Appendf(b, "target %q %d %x\n", x.Name, x.Revision, x.Data)
}

// nfcache is the size of a field of the kernel's own before the offsets.
func nfcache(f *family) int {
	if f.name == "arp" {
		return 0
	}
	return 4
}
