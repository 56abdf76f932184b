package rtnl

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// SizeofRuleHdr is the size of struct fib_rule_hdr, which x/sys lacks.
const SizeofRuleHdr = 12

// Rule turns a dumped policy rule into a request that adds or deletes it.
// Rules name interfaces, so nothing is rewritten.
func Rule(msg []byte) []byte {
	out := filter(msg, SizeofRuleHdr, func(Attr) bool { return true })
	// Permanent, unresolved and detached are answers, not wishes.
	flags := binary.NativeEndian.Uint32(out[8:])
	binary.NativeEndian.PutUint32(out[8:], flags&unix.FIB_RULE_INVERT)
	return out
}

// Shift is a user namespace that gives its ids 0 … size−1 the kernel's from
// Base. The kernel reads a rule's uid range as its sender counts, and compares it
// with its own ids: a range of the host's, copied as it is, matches nobody inside.
type Shift struct{ Base, Size uint32 }

// In makes a rule of the host one for sockets inside. False: its ids are none
// there. It changes a copy.
func (s Shift) In(rule []byte) ([]byte, bool) {
	return s.uids(rule, func(first, last uint32) (uint32, uint32, bool) {
		last = min(last, s.Size-1)
		return s.Base + first, s.Base + last, first <= last
	})
}

// Out makes a rule that was read in the namespace what somebody inside reads. A
// range with others' ids stays as it is.
func (s Shift) Out(rule []byte) []byte {
	out, _ := s.uids(rule, func(first, last uint32) (uint32, uint32, bool) {
		if first < s.Base || last-s.Base >= s.Size {
			return first, last, true
		}
		return first - s.Base, last - s.Base, true
	})
	return out
}

func (s Shift) uids(rule []byte, f func(first, last uint32) (uint32, uint32, bool)) ([]byte, bool) {
	ok := true
	if s.Size == 0 || Find(rule[SizeofRuleHdr:], unix.FRA_UID_RANGE) == nil {
		return rule, ok
	}
	return filter(rule, SizeofRuleHdr, func(a Attr) bool {
		if a.Type == unix.FRA_UID_RANGE && len(a.Value) >= 8 { // struct fib_rule_uid_range
			var first, last uint32
			first, last, ok = f(number(a.Value), number(a.Value[4:]))
			binary.NativeEndian.PutUint32(a.Value, first)
			binary.NativeEndian.PutUint32(a.Value[4:], last)
		}
		return true
	}), ok
}

// PlainRule makes a rule that sends everything to a table.
func PlainRule(af byte, pref uint32, tab byte) []byte {
	m := make([]byte, SizeofRuleHdr)
	m[0], m[4], m[7] = af, tab, ruleToTable
	m = AppendUint32(m, unix.FRA_PRIORITY, pref)
	return AppendUint32(m, unix.FRA_TABLE, uint32(tab))
}
