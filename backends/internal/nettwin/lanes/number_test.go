package lanes

import "testing"

// TestNumbersKeepClear goes through every number that there is: each belongs to
// its block alone and has none of the bits that others are known to use.
func TestNumbersKeepClear(t *testing.T) {
	seen := map[uint32]bool{}
	for b := range block(blocks) {
		for hop := range hops {
			n := b.number(hop)
			if got, ok := blockOf(n); !ok || got != b || !b.has(n) || (b+1)%blocks != b && ((b+1)%blocks).has(n) {
				t.Fatalf("%#x is said to be of block %d (%v), want %d alone", n, got, ok, b)
			}
			if n&(0x4000|0x8000|0xff0000) != 0 || n&mask != n || n <= 255 {
				t.Fatalf("%#x has bits that are others'", n)
			}
			seen[n] = true
		}
	}
	if len(seen) != blocks*hops {
		t.Errorf("%d different numbers, want %d", len(seen), blocks*hops)
	}
	for _, n := range []uint32{0, 91, 254, 0xca6c, 0x5a000000, 0x5f000000, 0x5b004000, 0x5b010000, 0xffffffff} {
		if b, ok := blockOf(n); ok {
			t.Errorf("%#x is said to be of block %d", n, b)
		}
	}
}

func TestMarkClashes(t *testing.T) {
	const all = ^uint32(0)
	for _, c := range []struct {
		name string
		mark Mark
		n    uint32
		want bool
	}{
		{"the same mark", Mark{0x5b000000, all}, 0x5b000000, true},
		{"another number", Mark{0x5b000001, all}, 0x5b000000, false},
		{"our tag whole", Mark{0x5b000000, 0xff000000}, 0x5b000102, true},
		{"half of our tag", Mark{0x5b000000, 0x0f000000}, 0x5b000000, true},
		{"half of another tag", Mark{0x0c000000, 0x0f000000}, 0x5b000000, false},
		{"bits of the block", Mark{0x200, 0xf00}, 0x5b000200, true},
		{"other bits of the block", Mark{0x200, 0xf00}, 0x5b000100, false},
		{"a bit of ours and theirs", Mark{0x5b004000, all}, 0x5b000000, true},
		{"our tag with bits that we leave open", Mark{0x5b080000, 0xff0f0000}, 0x5b000203, true},
		{"Tailscale", Mark{0x80000, 0xff0000}, 0x5b000000, false},
		{"kube-proxy", Mark{0x4000, 0x4000}, 0x5b000000, false},
		{"wg-quick", Mark{0xca6c, all}, 0x5b000000, false},
		{"packets without their mark", Mark{0, 0xff0000}, 0x5b000000, false},
		{"no mark at all", Mark{0, 0}, 0x5b000000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.mark.clashes(c.n); got != c.want {
				t.Errorf("%#x/%#x and %#x: got %v, want %v", c.mark.Value, c.mark.Mask, c.n, got, c.want)
			}
		})
	}
}

func TestMarkConflicts(t *testing.T) {
	got := MarkConflicts([]Mark{{0x4000, 0x4000}, {0x5b000102, ^uint32(0)}, {0x1, 0x1}})
	if len(got) != 2 || got[0].Subject != "mark 0x5b000102/0xffffffff of the packet filter" || got[1].Kind != ConflictMark {
		t.Errorf("got %+v, want the second and the third", got)
	}
}
