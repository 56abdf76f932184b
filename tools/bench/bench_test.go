package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const output = `goos: linux
BenchmarkExec-2   	      20	         5.000 bwrap-ms	         4.500 exec-ms	         0.9000 exec/bwrap	        22.79 idle-MB
--- BENCH: BenchmarkExec-2
    bench_linux_test.go:50: 20 rounds
PASS
`

func TestMetrics(t *testing.T) {
	want := map[string]float64{"bwrap-ms": 5, "exec-ms": 4.5, "exec/bwrap": 0.9, "idle-MB": 22.79}
	if d := cmp.Diff(want, metrics(output)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestLine(t *testing.T) {
	got := metrics(output)
	for _, tc := range []struct {
		name string
		row  row
		want string
	}{
		{"a ratio within its bar", row{what: "exec", ours: "exec-ms", theirs: "bwrap-ms", ratio: "exec/bwrap", bar: 1}, "| exec | 4.50 ms | 5.00 ms | 0.90 | ≤ 1.00 | met |"},
		{"a value beyond its bar", row{what: "idle", ours: "idle-MB", bar: 15}, "| idle | 22.8 MB |  |  | ≤ 15.0 MB | missed |"},
		{"a lower bound that is missed", row{what: "exec", ours: "exec-ms", ratio: "exec/bwrap", bar: 2.5, least: true}, "| exec | 4.50 ms |  | 0.90 | ≥ 2.50 | missed |"},
		{"no bar", row{what: "exec", ours: "exec-ms"}, "| exec | 4.50 ms |  |  |  |  |"},
		{"nothing measured", row{what: "twin", ours: "twin-ms", bar: 1}, "| twin | not measured |  |  | ≤ 1.00 ms |  |"},
	} {
		if d := cmp.Diff(tc.want, tc.row.line(got)); d != "" {
			t.Errorf("%s (-want +got)\n%s", tc.name, d)
		}
	}
}

// TestSuitesNameMetrics: a misspelt metric would be "not measured" for ever.
func TestSuitesNameMetrics(t *testing.T) {
	for _, s := range suites {
		for _, r := range s.rows {
			for _, m := range []string{r.ours, r.theirs} {
				if m != "" && !strings.Contains(m, "-") {
					t.Errorf("%s: %q has no unit", s.name(), m)
				}
			}
			if r.bar != 0 && r.ratio == "" && r.ours == "" {
				t.Errorf("%s: %q has a bar for nothing", s.name(), r.what)
			}
		}
	}
}
