package xtables

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
)

// references are matches and targets that name what no twin has: sets of ipset
// and objects of nfacct. The kernel refuses the whole table for one of them.
var references = []string{"set", "SET", "nfacct"}

// refers reports whether an entry has one, or a target that acts on the whole
// machine, and which.
func (e entry) refers() (string, bool) {
	for m := range e.matches() {
		if slices.Contains(references, m.Name) {
			return m.Name, true
		}
	}
	x := e.target()
	return x.Name, slices.Contains(references, x.Name) || nft.Extension(x).Global()
}

// without is the table less the rules that refer, and how many there were for
// each name of a chain and what it refers to. Chains and policies stay: neither
// can refer to anything.
func (t *Table) without() (*Table, []refused) {
	var gone []refused
	starts := map[uint32]string{}
	for _, c := range t.chains() {
		for _, e := range c.rules {
			if name, ok := e.refers(); ok {
				starts[e.at] = c.name
				gone = append(gone, refused{c.name, name})
			}
		}
	}
	n := &Table{family: t.family, name: t.name, valid: t.valid}
	moved := map[uint32]uint32{}
	for e := range t.walk() {
		// What led to a rule that is gone leads to the next.
		moved[e.at] = uint32(len(n.entries))
		if _, ok := starts[e.at]; !ok {
			n.entries = append(n.entries, e.bytes...)
			n.count++
		}
	}
	for i := range t.hook {
		n.hook = append(n.hook, moved[t.hook[i]])
		n.underflow = append(n.underflow, moved[t.underflow[i]])
	}
	n.lead(moved)
	return n, gone
}

// refused is a rule that cannot be loaded.
type refused struct{ chain, reference string }

// lead makes jumps go where the rules are now.
func (t *Table) lead(moved map[uint32]uint32) {
	t.entries = bytes.Clone(t.entries)
	for e := range t.walk() {
		x := e.target()
		if v, ok := x.verdict(); ok && v >= 0 {
			if to, ok := moved[uint32(v)]; ok {
				binary.NativeEndian.PutUint32(x.Data, to) // of the clone
			}
		}
	}
}
