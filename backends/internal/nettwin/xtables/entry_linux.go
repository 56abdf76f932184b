package xtables

import (
	"encoding/binary"
	"iter"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
)

// entry is one rule, policy or head of a chain.
type entry struct {
	at     uint32
	bytes  []byte
	family *family
}

// extension is a match or a target.
type extension nft.Extension

// walk goes through the entries. Malformed ones end it: the kernel checked them,
// but no index may leave the slice.
func (t *Table) walk() iter.Seq[entry] {
	return func(yield func(entry) bool) {
		f := t.family
		for at := 0; at+f.head <= len(t.entries); {
			b := t.entries[at:]
			n := int(binary.NativeEndian.Uint16(b[f.offsets+2:]))
			if n < f.head || n > len(b) {
				return
			}
			if !yield(entry{uint32(at), b[:n], f}) {
				return
			}
			at += n
		}
	}
}

// target is where the entry ends.
func (e entry) target() extension {
	at := int(binary.NativeEndian.Uint16(e.bytes[e.family.offsets:]))
	if at < e.family.head {
		return extension{}
	}
	x, _ := extend(e.bytes[min(at, len(e.bytes)):])
	return x
}

// matches are what the entry asks for beside addresses and interfaces.
func (e entry) matches() iter.Seq[extension] {
	return func(yield func(extension) bool) {
		end := min(int(binary.NativeEndian.Uint16(e.bytes[e.family.offsets:])), len(e.bytes))
		for at := e.family.head; at < end; {
			x, n := extend(e.bytes[at:end])
			if n == 0 || !yield(x) {
				return
			}
			at += n
		}
	}
}

// extend decodes the match or target that b begins with, and its size.
func extend(b []byte) (extension, int) {
	if len(b) < targetHeader {
		return extension{}, 0
	}
	n := int(binary.NativeEndian.Uint16(b))
	if n < targetHeader || n > len(b) {
		return extension{}, 0
	}
	return extension{text(b[2 : targetHeader-1]), b[targetHeader-1], b[targetHeader:n]}, n
}

// verdict decodes a target that is one: an offset to jump to, or less than 0.
func (x extension) verdict() (int32, bool) {
	if x.Name != "" || len(x.Data) < 4 {
		return 0, false
	}
	return int32(binary.NativeEndian.Uint32(x.Data)), true
}

// head reports the name that an entry gives to the chain which it begins.
func (x extension) head() (string, bool) {
	if x.Name != "ERROR" {
		return "", false
	}
	return text(x.Data), true
}

// chain is a part of a table.
type chain struct {
	name   string
	start  uint32 // of its first rule; jumps go there
	rules  []entry
	policy string // of a built-in one
}

var verdicts = map[int32]string{-1: "DROP", -2: "ACCEPT", -4: "QUEUE", -5: "RETURN"}

// chains splits a table. The last entry, which begins no chain, has no rules.
func (t *Table) chains() []*chain {
	begins := map[uint32]string{}
	ends := map[uint32]bool{}
	for i, name := range t.family.hooks {
		if t.valid&(1<<i) != 0 {
			begins[t.hook[i]] = name
			ends[t.underflow[i]] = true
		}
	}
	var out []*chain
	var last *chain
	for e := range t.walk() {
		if name, ok := begins[e.at]; ok {
			last = &chain{name: name, start: e.at}
			out = append(out, last)
		}
		if name, ok := e.target().head(); ok {
			last = &chain{name: name, start: e.at + uint32(len(e.bytes))}
			out = append(out, last)
			continue
		}
		switch {
		case last == nil:
		case ends[e.at]:
			v, _ := e.target().verdict()
			last.policy = verdicts[v]
			last = nil
		default:
			last.rules = append(last.rules, e)
		}
	}
	if n := len(out); n > 0 && out[n-1].name == "ERROR" {
		out = out[:n-1]
	}
	return out
}

// pristine reports a table in which nothing was done yet.
func (t *Table) pristine() bool {
	for _, c := range t.chains() {
		if c.policy != "ACCEPT" || len(c.rules) > 0 {
			return false
		}
	}
	return true
}
