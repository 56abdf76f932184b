// Package versus measures things side by side.
//
// A time says something beside other times of the same minutes on the same
// machine, and little else. So a benchmark runs all its contestants once in each
// round, whatever slows the machine slows all of them, and what counts is the
// ratio of their medians. Nothing here judges: bars are in docs/benchmarks.md and
// tools/bench, because a timed assertion is a test that fails on a busy day.
package versus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Series is what was measured, by contestant. Its zero value is empty.
type Series struct{ values map[string][]float64 }

// Time runs f and records how long it took under name, in milliseconds.
func (s *Series) Time(name string, f func()) time.Duration {
	begun := time.Now()
	f()
	took := time.Since(begun)
	s.Took(name, took)
	return took
}

// Cost is Time that also records the processor time that this process, all its
// threads, used: "diff-cpu-ms" for "diff". It does not grow with what others do at
// the same time, and is silent about waiting.
func (s *Series) Cost(name string, f func()) time.Duration {
	before := Processor()
	took := s.Time(name, f)
	s.Took(name+"-cpu", Processor()-before)
	return took
}

// Processor is the processor time that this process has used.
func Processor() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // EFAULT or EINVAL only
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// Took records a duration that was measured elsewhere.
func (s *Series) Took(name string, d time.Duration) { s.Add(name+"-ms", d.Seconds()*1e3) }

// Add records a value in a unit of its own, which is a part of the name:
// "twin-down-MB/s".
func (s *Series) Add(name string, v float64) {
	if s.values == nil {
		s.values = map[string][]float64{}
	}
	s.values[name] = append(s.values[name], v)
}

// Median returns the median of a name, or 0 where nothing was recorded.
func (s *Series) Median(name string) float64 { return s.quantile(name, 0.5) }

func (s *Series) quantile(name string, q float64) float64 {
	v := slices.Sorted(slices.Values(s.values[name]))
	if len(v) == 0 {
		return 0
	}
	return v[int(q*float64(len(v)-1)+0.5)]
}

// Report reports every median, and the ratios that are asked for: "exec/bwrap"
// is the median time of exec over that of bwrap; names with a unit of their own
// are written with "÷" between them, and the unit is left out of the result.
func (s *Series) Report(b *testing.B, ratios ...string) {
	b.Helper()
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		b.ReportMetric(s.Median(name), name)
	}
	for _, r := range ratios {
		over, under, own := strings.Cut(r, "÷")
		label := r
		if own {
			label = bare(over) + "/" + bare(under)
		} else {
			over, under, _ = strings.Cut(r, "/")
			over, under = over+"-ms", under+"-ms"
		}
		if s.Median(under) == 0 {
			b.Fatalf("versus: nothing to compare in %q", r)
		}
		b.ReportMetric(s.Median(over)/s.Median(under), label)
	}
	b.ReportMetric(0, "ns/op") // of a whole round, which nobody asked for
	b.Logf("%d rounds, 10th to 90th percentile: %s", b.N, s.spread())
}

func (s *Series) spread() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		parts = append(parts, fmt.Sprintf("%s %.4g to %.4g", name, s.quantile(name, 0.1), s.quantile(name, 0.9)))
	}
	return strings.Join(parts, ", ")
}

// bare is a name without its unit.
func bare(name string) string {
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		return name[:i]
	}
	return name
}
