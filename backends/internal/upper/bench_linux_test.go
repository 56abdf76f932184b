package upper

import (
	"fmt"
	"os"
	"testing"
)

// BenchmarkDiff has many changed files over a host; the cost must follow their
// number. "first" records every origin, "again" finds them recorded.
func BenchmarkDiff(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		l := newLab(b, fmt.Sprintf("mkdir d; for i in $(seq %d); do echo $i > d/$i; done", n))
		for i := range n {
			must(b, os.WriteFile(fmt.Sprintf("%s/d/%d", l.merged, i+1), make([]byte, 900), 0o644))
		}
		b.Run(fmt.Sprintf("first/%d", n), func(b *testing.B) {
			for b.Loop() {
				must(b, os.RemoveAll(l.env+"/origins.log"))
				must(b, os.RemoveAll(l.env+"/hashes"))
				l.diffOf(b, n)
			}
		})
		b.Run(fmt.Sprintf("again/%d", n), func(b *testing.B) {
			for b.Loop() {
				l.diffOf(b, n)
			}
		})
	}
}

func (l *lab) diffOf(b *testing.B, n int) {
	b.Helper()
	d, err := Diff(l.env, DiffOptions{Base: l.base, TView: l.tview})
	must(b, err)
	if len(d.Changes) != n {
		b.Fatalf("%d changes, want %d", len(d.Changes), n)
	}
}
