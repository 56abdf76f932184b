package nettwin

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/versus"
)

// Of each family half are in a table of their own.
const manyRoutes, manyRules = 10000, 10000

// large is a host with 10 000 routes and 10 000 rules of nftables.
func large(t testing.TB) *testLab {
	l := newLab(t, nstest.NFT, nstest.Tool("ip"), nstest.Tool("nft"))
	var routes, rules strings.Builder
	for i := range manyRoutes / 4 {
		fmt.Fprintf(&routes, "route add 10.%d.%d.0/24 via 192.0.2.1\n", i/250, i%250)
		fmt.Fprintf(&routes, "route add 10.%d.%d.0/24 via 198.51.100.1 table 1000 metric %d proto 42\n", i/250, i%250, i+1)
		fmt.Fprintf(&routes, "route add 2001:db8:%x::/48 via 2001:db8:1::1\n", 0x1000+i)
		fmt.Fprintf(&routes, "route add 2001:db8:%x::/48 via 2001:db8:2::1 table 1000 metric %d\n", 0x1000+i, i+1)
	}
	l.batch(t, routes.String())
	rules.WriteString("table inet large {\n\tchain out {\n\t\ttype filter hook output priority 0; policy accept;\n\t\tip daddr != 240.0.0.0/4 accept\n")
	for i := range manyRules {
		fmt.Fprintf(&rules, "\t\tip daddr 240.%d.%d.%d tcp dport %d counter drop\n", i>>12, i>>6&63, i&63, i%1000+1)
	}
	rules.WriteString("\t}\n}\n")
	file := t.TempDir() + "/rules"
	must(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	_, err := l.host.Run(t.Context(), "nft", "-f", file)
	must(t, err)
	return l
}

// TestLargeHost counts what is in its twin, and uses it.
func TestLargeHost(t *testing.T) {
	l := large(t)
	echo(t, l.server, "tcp", ":80")
	l.mirror(t, Options{})
	h, err := observe(int(l.host.NS().Fd()))
	must(t, err)
	w, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	was, now := snapshot{}, snapshot{}
	for n, s := range map[*netlab.Node]snapshot{l.host: was, l.inside: now} {
		items, err := nft.Ruleset(int(n.NS().Fd()), nil)
		must(t, err)
		for _, i := range items {
			if !strings.Contains(i.Key, tableName) {
				s.add(KindNFT, i.Key, i.Text)
			}
		}
	}
	h.describe(was)
	w.describe(now)
	for _, k := range []Kind{KindRoute, KindNFT} {
		lines := 0
		for _, v := range now[k] {
			lines += len(v)
		}
		if ds := (snapshot{k: was[k]}).difference(snapshot{k: now[k]}); len(ds) != 0 || lines < manyRules {
			t.Errorf("%d of %d lines of %s differ: %.300v", len(ds), lines, k, ds)
		}
	}
	l.seenAs(t, "tcp", "203.0.113.80:80")
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("%d differences, first %s", len(got), got[0])
	}
	l.run(t, "ip route del 10.1.1.0/24")
	if got := l.lines(t); len(got) != 1 {
		t.Errorf("one route was deleted, but: %q", got)
	}
}

// BenchmarkMirror makes twins of a large host and of a small one.
func BenchmarkMirror(b *testing.B) {
	hosts := []struct {
		name string
		lab  *testLab
	}{{"small", newLab(b)}, {"large", large(b)}}
	var s versus.Series
	for b.Loop() {
		for _, h := range hosts {
			ns, err := h.lab.Node("inside")
			must(b, err)
			var w *Twin
			s.Time(h.name, func() {
				must(b, h.lab.host.Do(func() (err error) {
					w, err = Mirror(b.Context(), int(ns.NS().Fd()), Options{})
					return err
				}))
			})
			s.Time(h.name+"-difference", func() {
				_, err := w.Difference()
				must(b, err)
			})
			s.Time(h.name+"-close", func() { must(b, w.Close()) })
		}
	}
	s.Report(b)
}
