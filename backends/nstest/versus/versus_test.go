package versus

import (
	"math"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	var s Series
	if got := s.Median("nobody"); got != 0 {
		t.Errorf("median of nothing = %v", got)
	}
	for _, d := range []time.Duration{9 * time.Millisecond, time.Millisecond, 3 * time.Millisecond} {
		s.Took("x", d)
	}
	if got := s.Median("x-ms"); got != 3 {
		t.Errorf("median = %v, want 3", got)
	}
}

func TestReport(t *testing.T) {
	r := testing.Benchmark(func(b *testing.B) {
		var s Series
		s.Took("ours", 2*time.Millisecond)
		s.Took("theirs", 8*time.Millisecond)
		s.Add("twin-MB/s", 500)
		s.Add("slirp-MB/s", 100)
		s.Report(b, "ours/theirs", "twin-MB/s÷slirp-MB/s")
	})
	for name, want := range map[string]float64{"ours-ms": 2, "ours/theirs": 0.25, "twin-MB/s": 500, "twin/slirp": 5} {
		if got := r.Extra[name]; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

func TestCostIsOfWork(t *testing.T) {
	var s Series
	s.Cost("work", func() {
		for begun := Processor(); Processor()-begun < 20*time.Millisecond; {
			math.Sqrt(2)
		}
	})
	if got := s.Median("work-cpu-ms"); got < 20 || s.Median("work-ms") == 0 {
		t.Errorf("processor time = %v ms, time = %v ms; want at least 20", got, s.Median("work-ms"))
	}
}
