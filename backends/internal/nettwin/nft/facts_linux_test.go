package nft

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

const all32 = ^uint32(0)

// TestFacts reads what each kind of rule tells, and what looks like it.
func TestFacts(t *testing.T) {
	tcp, udp := uint8(unix.IPPROTO_TCP), uint8(unix.IPPROTO_UDP)
	lo4, lo6 := netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()
	for _, c := range []struct {
		name, rules string
		want        Seen
	}{
		{"nothing", "", Seen{}},
		{"sources", "table ip n { chain out { type nat hook postrouting priority srcnat; jump more; }; chain more { ip saddr 10.8.0.0/24 masquerade; }; }", Seen{SourceNAT: true}},
		{"no sources yet", "table ip n { chain out { type nat hook postrouting priority srcnat; }; }", Seen{}},
		{
			"a transparent proxy of nftables", `
table inet p {
	chain out {
		type nat hook output priority -100;
		meta skuid 1000 return
		ip daddr 127.0.0.0/8 return
		tcp dport { 80, 443 } redirect to :7892
		meta nfproto ipv6 udp dport 53 dnat ip6 to [::1]:5353
		meta l4proto tcp jump more
	}
	chain more { ip protocol tcp dnat ip to 127.0.0.1:7893
	}
	chain pre { type nat hook prerouting priority -100; tcp dport 80 redirect to :9999
	}
}`,
			Seen{
				OutputNAT: true, Owners: []string{"inet p chain out"},
				Redirects: []Redirect{
					{Proto: udp, Addr: lo6, Port: 5353, Six: true},
					{Proto: tcp, Port: 7892, Four: true, Six: true},
					{Proto: tcp, Addr: lo4, Port: 7893, Four: true},
				},
			},
		},
		{
			"ports by ranges and maps", `
table ip p {
	map ports { type inet_service : inet_service; elements = { 80 : 8080, 443 : 8443 }
	}
	chain out {
		type nat hook output priority -100;
		meta l4proto tcp redirect to :1000-1002
		meta l4proto tcp redirect to tcp dport map @ports
		ip daddr 192.0.2.9 redirect
	}
}`,
			Seen{OutputNAT: true, Redirects: []Redirect{
				{Port: 0, Four: true},
				{Proto: tcp, Port: 1000, Four: true},
				{Proto: tcp, Port: 1001, Four: true},
				{Proto: tcp, Port: 1002, Four: true},
				{Proto: tcp, Port: 8080, Four: true},
				{Proto: tcp, Port: 8443, Four: true},
			}},
		},
		{
			"a nat that has no rules, and one that sleeps", `
table ip p { chain out { type nat hook output priority -100;
	}
}
table ip z { flags dormant
	chain out { type nat hook output priority -100; tcp dport 80 redirect to :1
	}
}`, Seen{},
		},
		{
			"marks of nftables", `
table inet m {
	set known { type mark; elements = { 0x21, 0x22 }
	}
	map given { type ipv4_addr : mark; elements = { 192.0.2.1 : 0x31 }
	}
	chain pre {
		type filter hook prerouting priority 0;
		meta mark set 0x10
		meta mark 0x11 accept
		meta mark & 0xff00 == 0x1200 accept
		ct mark set 0x13
		meta mark set meta mark and 0xfffffff0 or 0x4
		meta mark set ct mark
		meta mark @known accept
		meta mark set ip saddr map @given
		meta mark 0x40-0x47 accept
		ct mark & 0xf0000000 != 0x50000000 drop
		socket mark 0x60 accept
		meta priority set 1:1
	}
}`,
			Seen{Marks: []Mark{
				{0x4, 0xf},
				{0x10, all32},
				{0x11, all32},
				{0x13, all32},
				{0x21, all32},
				{0x22, all32},
				{0x31, all32},
				{0x40, 0xfffffff8},
				{0x60, all32},
				{0x1200, 0xff00},
				{0x50000000, 0xf0000000},
			}},
		},
		{
			"firewalld's look at the way back, and looks at other things", `
table inet firewalld {
	chain filter_PREROUTING {
		type filter hook prerouting priority 10;
		meta nfproto ipv6 fib saddr . mark . iif oif missing drop
	}
	chain counts { type filter hook prerouting priority 10; fib saddr . iif oif missing counter
	}
	chain loose { type filter hook prerouting priority 10; fib saddr oif missing drop
	}
	chain types { type filter hook prerouting priority 10; fib daddr . iif type != { local, broadcast } drop
	}
	chain in { type filter hook input priority 10; jump deep
	}
	chain pre { type filter hook prerouting priority 20; iif vmap { lo : accept, eth0 : jump deep }
	}
	chain deep { fib saddr . iif oif missing reject
	}
}`,
			Seen{RPFilter: []string{"inet firewalld chain deep", "ip6 packets in inet firewalld chain filter_PREROUTING"}},
		},
		{
			"owners of nftables", `
table inet o {
	chain u { type filter hook output priority 0; meta skuid 1000 accept
	}
	chain g { type filter hook output priority 0; meta skgid { 5, 6 } drop
	}
	chain c { type filter hook output priority 0; meta cgroup 7 drop
	}
	chain n { type filter hook output priority 0; tcp dport 1000 drop
	}
}`,
			Seen{Owners: []string{"inet o chain c", "inet o chain g", "inet o chain u"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			host, _ := pair(t)
			apply(t, host, c.rules)
			got, err := Facts(int(host.NS().Fd()))
			must(t, err)
			if diff := cmp.Diff(c.want, *got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestFactsOfIptables reads the same of rules of iptables-nft.
func TestFactsOfIptables(t *testing.T) {
	host, _ := pair(t)
	nstest.Require(t, nstest.Tool("iptables"), nstest.Tool("ip6tables"))
	if failed := give(t, host, `
iptables -t nat -N REDSOCKS
iptables -t nat -A OUTPUT -p tcp -j REDSOCKS
iptables -t nat -A REDSOCKS -m owner --uid-owner 123 -j RETURN
iptables -t nat -A REDSOCKS -p tcp -j REDIRECT --to-ports 12345
iptables -t nat -A OUTPUT -p udp --dport 53 -j DNAT --to-destination 127.0.0.1:5353
iptables -t nat -A PREROUTING -p tcp -j REDIRECT --to-ports 9999
ip6tables -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 12346
iptables -t raw -A PREROUTING -m rpfilter --invert -j DROP
iptables -t mangle -A PREROUTING -m mark --mark 0x1/0xff -j MARK --set-xmark 0x10/0xf0
iptables -t mangle -A PREROUTING -m connmark --mark 0x2/0x3 -j CONNMARK --set-xmark 0x400/0xff00
iptables -t mangle -A PREROUTING -j CONNMARK --restore-mark
iptables -A FORWARD -j NFQUEUE --queue-num 5
iptables -A OUTPUT -j NFQUEUE --queue-num 5 --queue-bypass
iptables -t mangle -A PREROUTING -p tcp -j TPROXY --on-port 7893 --tproxy-mark 0x3000/0xf000`); failed != nil {
		t.Fatal(failed)
	}
	got, err := Facts(int(host.NS().Fd()))
	must(t, err)
	tcp, udp := uint8(unix.IPPROTO_TCP), uint8(unix.IPPROTO_UDP)
	want := Seen{
		OutputNAT: true, Owners: []string{"ip nat chain REDSOCKS"}, RPFilter: []string{"ip raw chain PREROUTING"},
		Queues: []string{"ip filter chain FORWARD"},
		Redirects: []Redirect{
			{Proto: udp, Addr: netip.MustParseAddr("127.0.0.1"), Port: 5353, Four: true},
			{Proto: tcp, Port: 12345, Four: true},
			{Proto: tcp, Port: 12346, Six: true},
		},
		Marks: []Mark{{0x1, 0xff}, {0x2, 0x3}, {0x10, 0xf0}, {0x400, 0xff00}, {0x3000, 0xf000}},
	}
	if diff := cmp.Diff(want, *got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzDecode decodes rules and elements of any bytes, as data of another kernel
// may look: it must end, within them.
func FuzzDecode(f *testing.F) {
	expression := func(name string, data []byte) []byte {
		e := rtnl.AppendString(nil, unix.NFTA_EXPR_NAME, name)
		return rtnl.Append(nil, unix.NFTA_LIST_ELEM, rtnl.Append(e, unix.NFTA_EXPR_DATA, data))
	}
	number := func(typ uint16, v uint32) []byte { return appendNumber(nil, typ, v) }
	value := rtnl.Append(nil, 2, rtnl.Append(nil, unix.NFTA_DATA_VALUE, []byte{0, 0, 0, 9}))
	for name := range scanners {
		for _, data := range [][]byte{nil, number(1, 1), append(number(1, 3), number(2, 1)...), append(append(number(1, 1), number(2, 3)...), value...)} {
			f.Add(append(expression("meta", append(number(1, 1), number(2, metaMark)...)), expression(name, data)...), data, byte(unix.NFPROTO_IPV4))
		}
	}
	f.Add(expression("match", append(rtnl.AppendString(nil, 1, "mark"), rtnl.Append(nil, 3, make([]byte, 7))...)), []byte{}, byte(unix.NFPROTO_BRIDGE))
	f.Fuzz(func(t *testing.T, list, element []byte, family byte) {
		name := rtnl.AppendString(nil, unix.NFTA_RULE_CHAIN, "c")
		hook := append(appendNumber(nil, unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_LOCAL_OUT), appendNumber(nil, unix.NFTA_HOOK_PRIORITY, 0)...)
		chain := rtnl.Append(rtnl.AppendString(rtnl.AppendString(nil, unix.NFTA_CHAIN_NAME, "c"), unix.NFTA_CHAIN_TYPE, "nat"), unix.NFTA_CHAIN_HOOK, hook)
		tab := &rawTable{
			object: object{family, nil}, name: "t", chains: []object{{family, chain}},
			sets:  []rawSet{{object: object{family, element}, name: strings.Repeat("s", len(element)%2), elements: [][]byte{element}}},
			rules: map[string][]object{"c": {{family, rtnl.Append(name, unix.NFTA_RULE_EXPRESSIONS, list[:min(len(list), 60000)])}}},
		}
		raw := &Raw{tables: []*rawTable{tab}}
		raw.Facts()
		tab.steps(map[int]int{0: 1, 9: 2})
		ruleText(family, list)
		var r reading
		r.table(tab)
	})
}
