package nft

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

const rules = `
table inet f {
	comment "mine"
	set ops { type ipv4_addr; flags timeout; elements = { 198.51.100.20 timeout 1h, 198.51.100.21 } }
	set seen { type ipv4_addr; flags dynamic; timeout 1m; }
	map verdicts { type inet_service : verdict; elements = { 22 : accept, 23 : drop } }
	counter hits { }
	chain input {
		type filter hook input priority 0; policy accept;
		ct state established,related counter accept
		ip saddr @ops tcp dport 22 counter accept comment "ssh"
		tcp dport vmap @verdicts
		tcp dport 9000 add @seen { ip saddr } counter name hits
		iifname "lo" icmp type echo-request limit rate 10/second accept
		quota over 1000 mbytes drop
	}
	chain mine { meta mark set 0x10 return; }
}
table ip nat { chain post { type nat hook postrouting priority srcnat; oifname "eth0" masquerade; }; }
`

// loaded is a node with the rules above.
func loaded(t *testing.T) *netlab.Node {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.NetNS, nstest.NFT, nstest.Tool("nft"))
	l := netlab.New()
	t.Cleanup(func() { l.Close() })
	n, err := l.Node("node")
	must(t, err)
	file := t.TempDir() + "/rules"
	must(t, os.WriteFile(file, []byte(rules), 0o600))
	nft(t, n, "-f", file)
	return n
}

func nft(t *testing.T, n *netlab.Node, args ...string) {
	t.Helper()
	_, err := n.Run(t.Context(), append([]string{"nft"}, args...)...)
	must(t, err)
}

func read(t *testing.T, n *netlab.Node, skip *Table) []Item {
	t.Helper()
	items, err := Ruleset(int(n.NS().Fd()), skip)
	must(t, err)
	for i := range items {
		items[i].Left = 0
	}
	return items
}

// TestRulesAreReadable: a person finds in a difference what nft(8) was told.
func TestRulesAreReadable(t *testing.T) {
	n := loaded(t)
	nft(t, n, "add table inet g")
	nft(t, n, "add chain inet g out { type filter hook output priority 0; policy drop; }")
	nft(t, n, "add table arp a")
	nft(t, n, "add chain arp a out { type filter hook output priority 0; }")
	nft(t, n, "add rule arp a out @nh,96,32 1 drop")
	for rule, want := range map[string]string{
		"ip daddr 203.0.113.80 tcp dport 443 accept": "nfproto == ipv4 ip daddr == 203.0.113.80 l4proto == tcp dport == 443 accept",
		"ip6 saddr 2001:db8::1 udp sport 53 drop":    "nfproto == ipv6 ip6 saddr == 2001:db8::1 l4proto == udp sport == 53 drop",
		"meta skuid 1000 meta mark 0x10 drop":        "skuid == 1000 mark == 0x10 drop",
		"ip daddr != 10.0.0.0/8 drop":                "nfproto == ipv4 @network,16,1 != 10 drop",
	} {
		nft(t, n, "add rule inet g out "+rule)
		if got := render(read(t, n, nil)); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in\n%s", rule, want, got)
		}
	}
	got := render(read(t, n, nil))
	for _, want := range []string{"hook output priority 0 policy drop { 4 rules ", "hook postrouting priority 100 policy accept { 1 rule ", "@network,12,4 == 0x00000001 drop"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestReadingIsStable moves counters, fills a dynamic set and lets time pass.
func TestReadingIsStable(t *testing.T) {
	n := loaded(t)
	before := read(t, n, nil)
	for range 3 {
		_, _ = n.Dial(t.Context(), "tcp", "127.0.0.1:9000") // refused: the rules saw it
	}
	if after := read(t, n, nil); !slices.Equal(before, after) {
		t.Errorf("before:\n%s\nafter:\n%s", render(before), render(after))
	}
	if len(before) < 15 {
		t.Errorf("only %d items:\n%s", len(before), render(before))
	}
}

// TestEveryEditIsSeen makes one small edit after another.
func TestEveryEditIsSeen(t *testing.T) {
	n := loaded(t)
	for _, c := range []struct{ edit, key string }{
		{"add element inet f ops { 198.51.100.99 }", "set inet f ops"},
		{"delete element inet f ops { 198.51.100.20 }", "element inet f ops"},
		{"delete element inet f verdicts { 22 : accept }", "set inet f verdicts"},
		{"add rule inet f input tcp dport 9001 accept", "chain inet f input"},
		{"insert rule inet f input tcp dport 9002 accept", "rule inet f input"},
		{"add chain inet f input { policy drop; }", "chain inet f input"},
		{"add chain inet f other", "chain inet f other"},
		{"add counter inet f more", "object inet f more"},
		{"flush chain inet f mine", "rule inet f mine"},
		{"add table bridge b", "table bridge b"},
		{"add set inet f fresh { type inet_service; }", "set inet f fresh"},
		{"delete table ip nat", "rule ip nat post"},
		{"flush ruleset", "table inet f"},
	} {
		before := read(t, n, nil)
		nft(t, n, c.edit)
		if keys := changed(before, read(t, n, nil)); !slices.Contains(keys, c.key) {
			t.Errorf("%s: changed %q, want %q", c.edit, keys, c.key)
		}
	}
	if left := read(t, n, nil); len(left) != 0 {
		t.Errorf("after a flush: %s", render(left))
	}
}

// TestOrderOfRulesCounts swaps two rules.
func TestOrderOfRulesCounts(t *testing.T) {
	n := loaded(t)
	nft(t, n, "add chain inet f o; add rule inet f o tcp dport 1 accept; add rule inet f o tcp dport 2 drop")
	before := read(t, n, nil)
	nft(t, n, "flush chain inet f o; add rule inet f o tcp dport 2 drop; add rule inet f o tcp dport 1 accept")
	if keys := changed(before, read(t, n, nil)); !slices.Equal(keys, []string{"chain inet f o"}) {
		t.Errorf("changed %q, want the chain", keys)
	}
}

// TestOwnedTable makes the relay's table beside the rules.
func TestOwnedTable(t *testing.T) {
	n := loaded(t)
	before := read(t, n, nil)
	ns := int(n.NS().Fd())
	table, err := Make(ns, "ours", true)
	must(t, err)
	if !table.Owned {
		t.Fatal("this kernel has no owned tables")
	}
	v4, v6 := netip.MustParseAddrPort("192.0.0.8:9"), netip.MustParseAddrPort("[100::1]:9")
	for i := range 3 { // replaced as a whole each time
		var cs []Capture
		for p := range 50 * i {
			cs = append(cs, Capture{Direct, unix.IPPROTO_TCP, netip.MustParseAddr("127.0.0.1"), uint16(1000 + p), v4},
				Capture{Translated, unix.IPPROTO_UDP, netip.IPv6Unspecified(), uint16(1000 + p), v6})
		}
		must(t, table.Set(cs))
	}
	if got := read(t, n, table); !slices.Equal(got, before) {
		t.Errorf("the table is not left out:\n%s", render(got))
	}
	if got := read(t, n, nil); len(got) != len(before)+2+203 {
		t.Errorf("%d items with the table, want a table, a chain and 203 rules more than %d", len(got), len(before))
	}
	must(t, Flush(ns))
	if got := read(t, n, nil); len(got) != 205 {
		t.Errorf("%d items after a flush, want the owned ones:\n%s", len(got), render(got))
	}
	must(t, table.Close())
	if got := read(t, n, nil); len(got) != 0 {
		t.Errorf("after its socket closed: %s", render(got))
	}
}

func changed(a, b []Item) []string {
	count := map[Item]int{}
	for _, i := range a {
		count[i]++
	}
	for _, i := range b {
		count[i]--
	}
	var keys []string
	for i, n := range count {
		if n != 0 {
			keys = append(keys, i.Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func render(items []Item) string {
	var b strings.Builder
	for _, i := range items {
		fmt.Fprintf(&b, "%s: %s\n", i.Key, i.Text)
	}
	return b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
