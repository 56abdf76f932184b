package nettwin

import (
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestTableSurvives has root inside do what it can against the relay's table, and
// asks by both protocols and families afterwards.
func TestTableSurvives(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	greet(t, l.host, "127.0.0.1:7890", "host")
	greet(t, l.host, "[::1]:7890", "host")
	says(t, l.host, "127.0.0.53:53", "host")
	says(t, l.host, "[::1]:7890", "host")
	l.mirror(t, Options{Relay: []uint16{7890}})
	for _, c := range []struct {
		try    string
		denied bool
	}{
		{"flush ruleset", false},
		{"delete table inet netsandbox", true},
		{"flush table inet netsandbox", true},
		{"delete chain inet netsandbox prerouting", true},
		{"insert rule inet netsandbox prerouting drop", true},
		{"add table inet netsandbox { flags dormant; }", true},
	} {
		_, err := l.inside.Run(t.Context(), "nft", c.try)
		if (err != nil) != c.denied {
			t.Errorf("%s: %v", c.try, err)
		}
		l.wantRelayed(t, c.try)
	}
	ds, err := l.twin.Difference()
	must(t, err)
	if len(ds) != 0 {
		t.Errorf("the table is in the difference: %v", ds)
	}
}

// wantRelayed asks the host's services of the tests of the table.
func (l *testLab) wantRelayed(t *testing.T, when string) {
	t.Helper()
	for _, addr := range []string{"127.0.0.1:7890", "[::1]:7890"} {
		if got, err := l.ask(addr); got != "host" || err != nil {
			t.Errorf("%s: tcp %s: got %q, %v", when, addr, got, err)
		}
	}
	for _, addr := range []string{"127.0.0.53:53", "[::1]:7890"} {
		if got, err := l.datagram(addr, "q"); got != "host q" || err != nil {
			t.Errorf("%s: udp %s: got %q, %v", when, addr, got, err)
		}
	}
}

// TestUnownedTableIsRenewed gives a twin a table as a kernel before 5.12 has it:
// whoever is root inside can flush it.
func TestUnownedTableIsRenewed(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	greet(t, l.host, "127.0.0.1:7890", "host")
	greet(t, l.host, "[::1]:7890", "host")
	says(t, l.host, "127.0.0.53:53", "host")
	says(t, l.host, "[::1]:7890", "host")
	l.mirror(t, Options{Relay: []uint16{7890}})
	l.twin.loop.mu.Lock()
	must(t, l.twin.loop.table.Close())
	table, err := nft.Make(int(l.twin.ns.Fd()), tableName, false)
	l.twin.loop.table = table
	must(t, err)
	must(t, table.Set(l.twin.loop.current))
	l.twin.loop.mu.Unlock()
	l.wantRelayed(t, "with an unowned table")
	for _, try := range []string{"flush ruleset", "delete table inet netsandbox", "flush table inet netsandbox", "delete chain inet netsandbox prerouting"} {
		if try == "delete chain inet netsandbox prerouting" {
			load(t, l.inside, "flush chain inet netsandbox prerouting")
		}
		load(t, l.inside, try)
		must(t, l.twin.Look()) // looks now, and not at the next poll
		l.wantRelayed(t, try)
	}
	load(t, l.inside, "flush ruleset")
	eventually(t, "the table is back without a request", func() bool {
		out, err := l.inside.Run(t.Context(), "nft", "list", "table", "inet", tableName)
		return err == nil && strings.Contains(out, "tproxy")
	})
	ds, err := l.twin.Difference()
	must(t, err)
	if len(ds) != 0 {
		t.Errorf("the table is in the difference: %v", ds)
	}
}

// TestTableStandsLast lets rules of the inside decide about relayed traffic, with
// the addresses that the application used.
func TestTableStandsLast(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	greet(t, l.host, "127.0.0.1:7890", "host")
	says(t, l.host, "127.0.0.53:53", "host")
	for _, c := range []struct{ name, rules string }{
		{"output", "chain c { type filter hook output priority 0; tcp dport 7890 drop; ip daddr 127.0.0.53 udp dport 53 drop; };"},
		{"input", "chain c { type filter hook input priority 0; tcp dport 7890 drop; ip daddr 127.0.0.53 udp dport 53 drop; };"},
		{"prerouting", "chain c { type filter hook prerouting priority 300; tcp dport 7890 drop; ip daddr 127.0.0.53 udp dport 53 drop; };"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.mirror(t, Options{Relay: []uint16{7890}})
			if got, err := l.ask("127.0.0.1:7890"); got != "host" || err != nil {
				t.Fatalf("before: got %q, %v", got, err)
			}
			load(t, l.inside, "table inet f { "+c.rules+" };")
			if err := l.connect("tcp", "127.0.0.1:7890", 300*time.Millisecond); err == nil {
				t.Error("tcp: a candidate that drops it has no effect")
			}
			if got, err := l.datagramWithin("127.0.0.53:53", "q", 300*time.Millisecond); err == nil {
				t.Errorf("udp: a candidate that drops it has no effect: got %q", got)
			}
		})
	}
}
