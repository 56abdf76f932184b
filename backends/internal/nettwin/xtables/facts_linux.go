package xtables

import (
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
)

// Learn adds to s what the tables tell.
func Learn(ts []*Table, s *nft.Seen) {
	for _, t := range ts {
		cs := t.chains()
		from := t.hooks(cs)
		for _, c := range cs {
			at := nft.Place{
				Chain: t.String() + " chain " + c.name, Family: t.family.number,
				Output: t.name == "nat" && from[c.start]["OUTPUT"], Inbound: from[c.start]["PREROUTING"],
			}
			for _, e := range c.rules {
				at.Proto = e.protocol()
				for m := range e.matches() {
					s.Match(at, nft.Extension(m))
				}
				x := e.target()
				s.Target(at, nft.Extension(x))
				if v, ok := x.verdict(); t.name == "nat" && c.policy != "" && (!ok || v >= 0) {
					s.OutputNAT = s.OutputNAT || at.Output
					s.SourceNAT = s.SourceNAT || from[c.start]["POSTROUTING"]
				}
			}
		}
	}
	s.Tidy()
}

// hooks says for each chain, by the offset that jumps to it have, from which
// built-in ones packets come into it.
func (t *Table) hooks(cs []*chain) map[uint32]map[string]bool {
	byStart := map[uint32]*chain{}
	for _, c := range cs {
		byStart[c.start] = c
	}
	out := map[uint32]map[string]bool{}
	for _, c := range cs {
		if c.policy == "" {
			continue
		}
		for queue := []*chain{c}; len(queue) > 0; queue = queue[1:] {
			at := queue[0].start
			if out[at] == nil {
				out[at] = map[string]bool{}
			}
			if out[at][c.name] {
				continue
			}
			out[at][c.name] = true
			for _, e := range queue[0].rules {
				if v, ok := e.target().verdict(); ok && v >= 0 && byStart[uint32(v)] != nil {
					queue = append(queue, byStart[uint32(v)])
				}
			}
		}
	}
	return out
}

// protocol is the one that the entry asks for; 0 when it asks for none, or for
// any but one.
func (e entry) protocol() uint8 {
	const inverted = 0x40 // XT_INV_PROTO
	switch e.family.number {
	case unix.NFPROTO_IPV4: // proto, flags, invflags
		if e.bytes[83]&inverted == 0 {
			return e.bytes[80]
		}
	case unix.NFPROTO_IPV6: // proto, tos, flags, invflags
		if e.bytes[132]&inverted == 0 {
			return e.bytes[128]
		}
	}
	return 0
}
