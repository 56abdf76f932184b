package upper

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest/versus"
)

// BenchmarkDiff has changed files over a host; the cost must follow their number
// and not that of the host's files. "first" records every origin, "again" finds
// them recorded. BENCH_FULL makes the large host ten times as large.
func BenchmarkDiff(b *testing.B) {
	large := 200_000
	if os.Getenv("BENCH_FULL") != "" {
		large *= 10
	}
	labs := map[string]*changedLab{
		"1k":       newChangedLab(b, 1_000, 0),
		"10k":      newChangedLab(b, 10_000, 0),
		"1k-large": newChangedLab(b, 1_000, large),
	}
	var s versus.Series
	for b.Loop() {
		for name, l := range labs {
			must(b, os.RemoveAll(l.env+"/origins.log"))
			must(b, os.RemoveAll(l.env+"/hashes"))
			s.Cost("first-"+name, func() { l.diff(b) })
			s.Cost("again-"+name, func() { l.diff(b) })
		}
	}
	s.Report(b, "first-10k/first-1k", "again-10k/again-1k", "first-1k-large/first-1k", "again-1k-large/again-1k", "first-10k-cpu/first-1k-cpu", "first-1k-large-cpu/first-1k-cpu", "again-1k-large-cpu/again-1k-cpu")
	b.ReportMetric(float64(large), "large-inodes")
}

type changedLab struct {
	*lab
	n int
}

// newChangedLab changes n files of a host that has others besides.
func newChangedLab(b *testing.B, n, others int) *changedLab {
	l := newLab(b, fmt.Sprintf("mkdir d others; for i in $(seq %d); do echo $i > d/$i; done", n))
	for i := range others {
		dir := fmt.Sprintf("%s/others/%d", l.host, i/1000)
		if i%1000 == 0 {
			must(b, os.Mkdir(dir, 0o755))
		}
		must(b, unix.Mknod(fmt.Sprintf("%s/%d", dir, i), unix.S_IFREG|0o644, 0))
	}
	for i := range n {
		must(b, os.WriteFile(fmt.Sprintf("%s/d/%d", l.merged, i+1), make([]byte, 900), 0o644))
	}
	return &changedLab{l, n}
}

func (l *changedLab) diff(b *testing.B) {
	b.Helper()
	d, err := Diff(l.env, DiffOptions{Base: l.base, TView: l.tview})
	must(b, err)
	if len(d.Changes) != l.n {
		b.Fatalf("%d changes, want %d", len(d.Changes), l.n)
	}
}
