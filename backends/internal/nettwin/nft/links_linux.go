package nft

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// relinked copies the expressions of a rule with the numbers of interfaces
// exchanged that it compares or sends to.
func relinked(list []byte, links map[int]int) []byte {
	list = bytes.Clone(list)
	numbers := map[uint32]bool{}     // registers that hold one
	constants := map[uint32][]byte{} // and what was put into others
	for name, e := range expressions(list) {
		switch name {
		case "meta":
			key := e.num(unix.NFTA_META_KEY)
			numbers[slot(e.num(unix.NFTA_META_DREG))] = key == metaIIF || key == metaOIF
		case "fib":
			numbers[slot(e.num(unix.NFTA_FIB_DREG))] = e.num(unix.NFTA_FIB_RESULT) == unix.NFT_FIB_RESULT_OIF
		case "immediate":
			constants[slot(e.num(unix.NFTA_IMMEDIATE_DREG))] = e.value(unix.NFTA_IMMEDIATE_DATA)
		case "cmp":
			if numbers[slot(e.num(unix.NFTA_CMP_SREG))] {
				exchange(e.value(unix.NFTA_CMP_DATA), links)
			}
		case "fwd":
			exchange(constants[slot(e.num(unix.NFTA_FWD_SREG_DEV))], links)
		case "dup":
			if rtnl.Find(e.attrs, unix.NFTA_DUP_SREG_DEV) != nil {
				exchange(constants[slot(e.num(unix.NFTA_DUP_SREG_DEV))], links)
			}
		}
	}
	return list
}

// nft(8) gives every set the types of its fields, six bits each, the last field
// lowest. The kernel only keeps them.
const (
	typeBits    = 6
	typeIfindex = 20
)

// typeSizes are the sizes of the types that stand in concatenations, by number;
// each field begins at a multiple of four bytes.
var typeSizes = map[uint32]int{
	2: 1, 7: 4, 8: 16, 9: 6, 10: 2, 12: 1, 13: 2, 14: 1, 15: 1, 19: 4, typeIfindex: 4, 24: 4, 25: 4, 26: 4, 29: 1, 36: 1, 41: 16,
}

// ifindexes are the places of interface numbers in the keys of a set, as far as
// the sizes of what stands before them are known.
func ifindexes(set object) []int {
	var types []uint32
	for t := set.num(unix.NFTA_SET_KEY_TYPE); t != 0; t >>= typeBits {
		types = append(types, t&(1<<typeBits-1))
	}
	slices.Reverse(types)
	var out []int
	at := 0
	for _, t := range types {
		if t == typeIfindex {
			out = append(out, at)
		}
		size, ok := typeSizes[t]
		if !ok {
			break
		}
		at += (size + 3) &^ 3
	}
	return out
}

// renumbered copies the elements of a set with the numbers of interfaces
// exchanged.
func renumbered(set object, elements [][]byte, links map[int]int) [][]byte {
	places := ifindexes(set)
	if len(places) == 0 {
		return elements
	}
	out := make([][]byte, len(elements))
	for i, e := range elements {
		out[i] = bytes.Clone(e)
		for _, key := range []uint16{unix.NFTA_SET_ELEM_KEY, elemKeyEnd} {
			v := object{attrs: out[i]}.value(key)
			for _, at := range places {
				if at+4 <= len(v) {
					exchange(v[at:at+4], links)
				}
			}
		}
	}
	return out
}

// elemKeyEnd is NFTA_SET_ELEM_KEY_END.
const elemKeyEnd = 10

// exchange replaces the number of an interface in place.
func exchange(b []byte, links map[int]int) {
	if len(b) == 4 {
		if n, ok := links[int(binary.NativeEndian.Uint32(b))]; ok {
			binary.NativeEndian.PutUint32(b, uint32(n))
		}
	}
}
