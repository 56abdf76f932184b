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

// RuleDeletion turns a dumped policy rule into a request that deletes it. The
// range of users is left out: what a request does not say is not compared, and it
// may only be said from the user namespace that owns the network.
func RuleDeletion(msg []byte) []byte {
	return filter(Rule(msg), SizeofRuleHdr, func(a Attr) bool { return a.Type != unix.FRA_UID_RANGE })
}

// ForUsers reports a rule that is for a range of users.
func ForUsers(rule []byte) bool { return Find(rule[SizeofRuleHdr:], unix.FRA_UID_RANGE) != nil }

// Shift is a user namespace that gives its ids 0 … size−1 the kernel's from
// Base. The kernel compares a rule's range of users with its own ids; it
// translates it when a rule is made or dumped, by the namespace of who asks.
type Shift struct{ Base, Size uint32 }

// In limits a rule of the host to users that there are inside. False: none of
// them is.
func (s Shift) In(rule []byte) ([]byte, bool) {
	return s.uids(rule, func(first, last uint32) (uint32, uint32, bool) {
		return first, min(last, s.Size-1), first < s.Size
	})
}

// Out makes a rule that was dumped from outside what somebody inside reads. A
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
	if s.Size == 0 || !ForUsers(rule) {
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
