package nft

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// large is a ruleset of n rules, a hash table and a tree of n elements, and n/10
// anonymous sets.
func large(n int) string {
	var b strings.Builder
	b.WriteString("table inet big {\nset hash { type ipv4_addr; elements = {")
	for i := range n {
		fmt.Fprintf(&b, "10.%d.%d.%d, ", i>>16&255, i>>8&255, i&255)
	}
	b.WriteString("}\n}\nset tree { type ipv4_addr; flags interval; elements = {")
	for i := range n {
		fmt.Fprintf(&b, "11.%d.%d.%d-11.%d.%d.%d, ", i>>14&255, i>>6&255, i<<2&255, i>>14&255, i>>6&255, i<<2&255|2)
	}
	b.WriteString("}\n}\nchain in {\ntype filter hook input priority 0; policy accept;\nip saddr @hash accept\nip saddr @tree accept\n")
	for i := range n {
		if i%10 == 0 {
			fmt.Fprintf(&b, "tcp dport { %d, %d } drop\n", i, i+1)
			continue
		}
		fmt.Fprintf(&b, "iifname \"eth0\" ip saddr 172.16.%d.%d tcp dport %d ct state new counter accept comment \"rule %d\"\n", i>>8&255, i&255, i, i)
	}
	b.WriteString("}\n}\n")
	return b.String()
}

// TestLoadOfTenThousand loads as many rules and elements and compares all of them.
func TestLoadOfTenThousand(t *testing.T) {
	host, twin := pair(t)
	apply(t, host, large(10000))
	start := time.Now()
	if notes := load(t, host, twin); len(notes) != 0 {
		t.Fatalf("not loaded: %q", notes)
	}
	t.Logf("read and loaded in %v", time.Since(start))
	want, got := listed(t, host), listed(t, twin)
	if want != got || strings.Count(got, "\n") < 10000 {
		same(t, want, got)
	}
	if a, b := read(t, host, nil), read(t, twin, nil); len(a) != len(b) || len(a) < 10000 {
		t.Errorf("%d items on the host, %d in the twin", len(a), len(b))
	}
}

// BenchmarkLoad reads 10 000 rules and 20 000 elements on the host and makes them
// in a new namespace; beside it what reading them back for the baseline takes.
func BenchmarkLoad(b *testing.B) {
	host, twin := pair(b)
	apply(b, host, large(10000))
	ns := int(twin.NS().Fd())
	var baseline time.Duration
	for b.Loop() {
		if notes := load(b, host, twin); len(notes) != 0 {
			b.Fatalf("not loaded: %q", notes)
		}
		b.StopTimer()
		start := time.Now()
		if _, err := Ruleset(ns, nil); err != nil {
			b.Fatal(err)
		}
		baseline += time.Since(start)
		if err := Flush(ns); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(baseline.Milliseconds())/float64(b.N), "baseline-ms")
}
