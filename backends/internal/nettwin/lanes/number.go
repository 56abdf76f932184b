package lanes

import "fmt"

// A number is mark and table of one lane:
//
//	31      24 23      16 15  14 13    8 7       0
//	  tag       zero       zero  block     hop
//
// Bits 14 and 15 are Kubernetes' (kube-proxy sets 0x4000, kubelet 0x8000) and bits
// 16 to 23 Tailscale's. They set theirs on packets in passing, so rules of ours
// look at the other bits only: mask says which.
const (
	mask      uint32 = 0xff003fff
	firstTag  uint32 = 0x5b
	tagShift         = 24
	perTag           = 64 // blocks
	blocks           = 4 * perTag
	hops             = 256
	hopMask   uint32 = hops - 1
	protocol         = 91 // of routes and rules; iproute2's rt_protos has no such number
	firstPref        = 5100
)

// block is a set of numbers that one owner has.
type block uint16

func (b block) number(hop int) uint32 {
	return (firstTag+uint32(b)/perTag)<<tagShift | uint32(b)%perTag<<8 | uint32(hop)
}

// has reports whether a number is of the block.
func (b block) has(n uint32) bool { return n&^hopMask == b.number(0) }

// blockOf says whose a number is, if it is one.
func blockOf(n uint32) (block, bool) {
	tag := n>>tagShift - firstTag
	return block(tag*perTag + n>>8&(perTag-1)), tag < blocks/perTag && n&^mask == 0
}

// Mark is a way of looking at the marks of packets: those that equal Value where
// Mask has ones.
type Mark struct{ Value, Mask uint32 }

// matches reports whether a packet with mark n is one of them.
func (m Mark) matches(n uint32) bool { return (n^m.Value)&m.Mask == 0 }

// clashes reports whether somebody with these marks could mean a packet of lane
// n, or n's rule a packet of theirs.
func (m Mark) clashes(n uint32) bool {
	if m.Value&m.Mask == 0 {
		return false // they mean packets without a mark of theirs, such as ours
	}
	// Who leaves the tag open marks bits of packets that may be anybody's; who names
	// it has marks of the kind of ours, and a packet may carry both.
	return m.matches(n) || m.Mask>>tagShift != 0 && (n^m.Value)&m.Mask&mask == 0
}

// inRange finds a number that a mark clashes with.
func (m Mark) inRange() (uint32, bool) {
	for b := range block(blocks) {
		for hop := range hops {
			if n := b.number(hop); m.clashes(n) {
				return n, true
			}
		}
	}
	return 0, false
}

// MarkConflicts says which marks that the host's packet filter uses are in the
// range of lanes, as [Conflicts] does for rules.
func MarkConflicts(marks []Mark) []Conflict {
	var out []Conflict
	for _, m := range marks {
		if n, ok := m.inRange(); ok {
			out = append(out, Conflict{
				Kind: ConflictMark, Subject: fmt.Sprintf("mark %#x/%#x of the packet filter", m.Value, m.Mask),
				Reason: fmt.Sprintf("it is in the range of lanes (%#x); they take others", n),
			})
		}
	}
	return out
}
