package nft

import (
	"errors"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// lifetimes finds what moves with time.
var lifetimes = regexp.MustCompile(` expires [0-9a-z]+`)

// features are rulesets, each about one thing that nf_tables has.
var features = map[string]string{
	"families": `
table inet a {
	chain in { type filter hook input priority filter; policy drop; }
}
table ip a { chain out { type route hook output priority mangle; policy accept; }; }
table ip6 a { chain post { type nat hook postrouting priority srcnat; }; }
table arp a { chain in { type filter hook input priority 0; arp operation request accept; }; }
table bridge a { chain through { type filter hook forward priority 0; ether type ip drop; }; }
table netdev a { chain in { type filter hook ingress device "eth0" priority 0; ip saddr 192.0.2.66 drop; }; }
`,
	"devices of hooks": `
table netdev two { chain in { type filter hook ingress devices = { eth0, eth1 } priority -5; tcp dport 1 drop; }; }
table inet one { chain in { type filter hook ingress device "eth1" priority 5; udp dport 1 drop; }; }
`,
	"flags of tables": `table inet asleep { flags dormant; chain in { type filter hook input priority 0; policy drop; tcp dport 9 reject; }; }`,
	"comments": `
table inet c {
	comment "of the table"
	set s { type ipv4_addr; comment "of the set"; elements = { 192.0.2.1 comment "of the element", 192.0.2.2 }; }
	counter n { comment "of the object"; }
	chain in { comment "of the chain"; type filter hook input priority 0; tcp dport 22 accept comment "of the rule"; }
}`,
	"sets": `
table inet s {
	set plain { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 }; }
	set ports { type inet_service; flags interval; elements = { 0-22, 80, 443, 8000-9000, 60000-65535 }; }
	set nets { type ipv6_addr; flags interval; auto-merge; elements = { 2001:db8::/32, fe80::/10 }; }
	set pairs { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 80-90, 192.0.2.1 . 22 }; }
	set names { type ifname; elements = { "eth0", "wg0" }; }
	set timed { type ipv4_addr; flags timeout; timeout 2h; elements = { 192.0.2.1, 192.0.2.2 timeout 3h }; }
	set sized { type mark; size 128; policy memory; gc-interval 10s; flags timeout; }
	set every { type ipv4_addr; flags interval; counter; elements = { 10.0.0.0/8 counter packets 5 bytes 300, * }; }
	set seen { type ipv4_addr . inet_service; flags dynamic,timeout; timeout 1m; size 1000; elements = { 192.0.2.1 . 22 timeout 5m }; }
	set fields { typeof ip saddr . tcp dport; flags constant; elements = { 192.0.2.1 . 22 }; }
	chain c {
		type filter hook input priority 0;
		ip saddr @plain tcp dport @ports accept
		ip6 saddr @nets accept
		ip saddr . tcp dport @pairs accept
		iifname @names drop
		ip saddr { 10.1.0.0/16, 10.3.0.1-10.3.0.9, 172.16.0.1 } tcp dport != { 1-5, 6-10, 11 } drop
		iif . ip saddr { eth0 . 10.0.0.1, lo . 127.0.0.1 } accept
		iif { lo, eth1 } accept
		tcp dport 22 ct state new add @seen { ip saddr . tcp dport limit rate over 10/minute burst 3 packets } drop
		update @timed { ip saddr timeout 30s }
		meta mark @sized ip saddr @every
	}
}`,
	"maps": `
table ip m {
	map addrs { type inet_service : ipv4_addr; flags interval; elements = { 1-10 : 10.0.0.1, 80 : 10.0.0.2 }; }
	map both { type ipv4_addr : ipv4_addr . inet_service; elements = { 192.0.2.1 : 10.0.0.1 . 8080 }; }
	map verdicts { type inet_service : verdict; elements = { 22 : accept, 23 : drop, 24 : goto far, 25 : jump near, 26 : continue }; }
	map marks { type ipv4_addr : mark; flags timeout; elements = { 192.0.2.1 timeout 1h : 0x10 }; }
	map tallies { type ipv4_addr : counter; elements = { 192.0.2.1 : "hits" }; }
	counter hits { packets 7 bytes 700 }
	chain near { return; }
	chain far { tcp dport vmap { 1 : accept, 2-9 : jump near }; }
	chain pre {
		type nat hook prerouting priority dstnat;
		dnat to tcp dport map @addrs
		ip protocol tcp dnat ip addr . port to ip daddr map @both
		dnat to ip daddr map { 192.0.2.9 : 10.0.0.9 }
	}
	chain in {
		type filter hook input priority 0;
		tcp dport vmap @verdicts
		meta mark set ip saddr map @marks
		counter name ip saddr map @tallies
		iif vmap { lo : accept, eth0 : jump near, eth1 : goto far }
	}
}`,
	"anonymous chains": `
table inet j {
	chain in {
		type filter hook input priority 0;
		tcp dport 22 jump {
			ip saddr 10.0.0.0/8 counter accept
			drop
		}
		udp dport 53 goto { accept; }
		accept
	}
}`,
	"objects": `
table inet o {
	counter c { packets 3 bytes 180 }
	quota q { over 100 mbytes used 20 mbytes }
	limit l { rate 5/second burst 10 packets }
	limit b { rate over 1 mbytes/second }
	ct helper h { type "ftp" protocol tcp; l3proto inet; }
	ct timeout t { protocol tcp; l3proto ip; policy = { established : 300, close : 4 }; }
	ct expectation e { protocol tcp; dport 9876; timeout 2m; size 12; l3proto ip; }
	synproxy s { mss 1460; wscale 7; timestamp sack-perm; }
	chain in {
		type filter hook input priority 0;
		tcp dport 1 counter name c
		tcp dport 2 quota name q drop
		tcp dport 3 limit name l accept
		udp dport 3 limit name udp dport map { 1 : "l", 2 : "b" } accept
		tcp dport 21 ct helper set "h"
		tcp dport 5 ct timeout set "t"
		tcp dport 6 ct expectation set "e"
		tcp dport 7 synproxy name "s"
	}
}`,
	"statements": `
table inet t {
	chain pre {
		type filter hook prerouting priority -300; policy accept;
		tcp dport 1 notrack
		fib saddr . mark . iif oif missing drop
		fib daddr type { local, broadcast } counter
		socket transparent 1 meta mark set 0x1 accept
		meta mark set meta mark and 0xff00 or 0x12
		ct mark set meta mark
		meta nftrace set 1
		ip dscp set cs1
		meta pkttype broadcast drop
	}
	chain mss { type filter hook forward priority mangle; tcp flags syn tcp option maxseg size set rt mtu; reset tcp option sack-perm; }
	chain divert { type filter hook prerouting priority mangle; meta l4proto tcp tproxy ip to 127.0.0.1:7893; }
	chain translate { type nat hook prerouting priority dstnat; tcp dport 81 redirect to :8081; udp dport 82 dnat ip to 192.0.2.7:53; }
	chain out {
		type nat hook output priority -100;
		meta skuid 1000 return
		meta skgid { 100, 200-300 } return
		tcp dport 80 redirect to :3128
		ip daddr 10.0.0.0/8 meta l4proto tcp dnat ip to 10.0.0.1-10.0.0.9:1000-2000 random,persistent
	}
	chain post { type nat hook postrouting priority srcnat; oifname "eth0" masquerade random; oif eth1 snat ip6 to 2001:db8::1; }
	chain in {
		type filter hook input priority 0; policy drop;
		ct state related,established counter packets 10 bytes 20 accept
		ct state vmap { invalid : drop, new : continue, untracked : accept }
		ct count over 20 reject with tcp reset
		limit rate over 10/second burst 20 packets log prefix "in: " level warn flags all drop
		log group 3 snaplen 128
		icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert } accept
		icmp type echo-request limit rate 4/second accept
		tcp flags & (fin | syn) == (fin | syn) drop
		tcp flags syn tcp option maxseg size 1-500 drop
		ip frag-off & 0x1fff != 0 drop
		meta length > 1500 drop
		meta cpu 0-3 numgen random mod 10 < 3 accept
		meta time "2030-01-01 00:00:00"-"2031-01-01 00:00:00" drop
		meta hour "09:00"-"17:00" accept
		jhash ip saddr mod 16 seed 0x1234 vmap { 0-7 : accept, 8-15 : continue }
		@th,16,16 { 99, 100 } drop
		quota over 1000 mbytes used 5 mbytes drop
		ip6 nexthdr tcp exthdr hbh exists drop
		rt classid 5 accept
		meta ipsec exists accept
		ct label 5 accept
		meta l4proto tcp ct original proto-dst 22 accept
		ct zone 3 accept
		osf name "Linux" accept
		udp dport 5 reject with icmpx admin-prohibited
		vlan id 5 drop
		symhash mod 2 vmap { 0 : accept, 1 : continue }
		numgen inc mod 3 offset 5 < 6 accept
		ct original bytes > 100000 ct packets > 5 ct reply avgpkt > 10 accept
		ipsec in reqid 5 accept
		ct event set new,destroy
		ct label set 7
		udp sport 6 udp dport set 7
		meta priority set 1:10
		meta mark set ct mark << 8
		meta mark set 0x5 ct mark set 0x6
		ct mark & 0xff == 0x12 meta mark and 0x3 != 0x1 accept
		socket mark 0x9 accept
		ip6 saddr & ffff:: == 2001:: accept
		tcp option sack-perm exists accept
		dccp type request drop
		sctp chunk data exists drop
		ah spi 5 drop
		mh type 3 drop
		meta random <= 100 drop
		day "Monday" accept
		iifgroup 3 drop
		ip option rr exists drop
		ip daddr 192.0.2.1-192.0.2.9 tcp sport 1024-65535 accept
		ether saddr 02:00:00:00:00:01 accept
	}
}
table ip d { chain in { type filter hook prerouting priority 0; udp dport 7 dup to 192.0.2.9 device "eth1"; }; }
table netdev d { chain in { type filter hook ingress device "eth0" priority 0; tcp dport 9 fwd to "eth1"; udp dport 9 dup to "eth1"; }; }
`,
}

// readable puts on lines of their own what nft 1.0.6 does not read on one.
func readable(rules string) string {
	return strings.NewReplacer("; }", ";\n}", "{ type", "{\ntype").Replace(rules)
}

// TestLoadIsFaithful loads each feature alone and all of them together, and
// compares the listings.
func TestLoadIsFaithful(t *testing.T) {
	var all strings.Builder
	cases := map[string]string{}
	for name, rules := range features {
		cases[name] = readable(rules)
		all.WriteString(readable(rules) + "\n")
	}
	cases["all together"] = all.String()
	for name, rules := range cases {
		t.Run(name, func(t *testing.T) {
			host, twin := pair(t)
			apply(t, host, rules)
			if notes := load(t, host, twin); len(notes) != 0 {
				t.Errorf("not loaded: %q", notes)
			}
			same(t, listed(t, host), listed(t, twin))
		})
	}
}

// TestLoadIntoAUserNamespace loads all of them into a namespace that a shifted
// user namespace owns, as that of a view is.
func TestLoadIntoAUserNamespace(t *testing.T) {
	host, _ := pair(t)
	l := netlab.New()
	t.Cleanup(func() { l.Close() })
	twin, _ := shifted(t, l)
	_, err := host.Run(t.Context(), "sh", "-c", "ip link del eth0; ip link del eth1")
	must(t, err)
	must(t, errors.Join(l.Wire(host, "eth0", twin, "eth0"), l.Wire(host, "eth1", twin, "eth1")))
	for _, rules := range features {
		apply(t, host, readable(rules))
	}
	raw, err := Read(int(host.NS().Fd()))
	must(t, err)
	links := map[int]int{}
	for _, name := range []string{"eth0", "eth1"} {
		links[linkNumber(t, host, name)] = linkNumber(t, twin, name)
	}
	notes, err := raw.Load(int(twin.NS().Fd()), links)
	must(t, err)
	if len(notes) != 0 {
		t.Errorf("not loaded: %q", notes)
	}
	if links[linkNumber(t, host, "eth0")] == linkNumber(t, host, "eth0") {
		t.Fatal("the links have the same numbers, and nothing had to be exchanged")
	}
	same(t, listed(t, host), listed(t, twin))
}

// linkNumber is that of a link.
func linkNumber(t *testing.T, n *netlab.Node, link string) (index int) {
	t.Helper()
	must(t, n.Do(func() error {
		i, err := net.InterfaceByName(link)
		if err == nil {
			index = i.Index
		}
		return err
	}))
	return index
}

func same(t *testing.T, want, got string) {
	t.Helper()
	if len(want) < 20 {
		t.Fatalf("the host has no rules: %q", want)
	}
	if diff := nstest.Difference(want, got); len(diff) != 0 || want != got {
		t.Errorf("host and twin:\n%s\n%s", strings.Join(diff, "\n"), got)
	}
}

// TestOwnersOfTables: a table that a socket of the host owns is anybody's in the
// twin, and does not go with the socket.
func TestOwnersOfTables(t *testing.T) {
	host, twin := pair(t)
	table, err := Make(int(host.NS().Fd()), "owned", true)
	must(t, err)
	if !table.Owned {
		t.Fatal("this kernel has no owned tables")
	}
	if notes := load(t, host, twin); len(notes) != 0 {
		t.Errorf("not loaded: %q", notes)
	}
	must(t, table.Close())
	if out := listed(t, twin); !strings.Contains(out, "table inet owned {") || strings.Contains(out, "flags") {
		t.Errorf("the twin has\n%s", out)
	}
	nft(t, twin, "flush", "ruleset")
	if out := listed(t, twin); out != "" {
		t.Errorf("after a flush:\n%s", out)
	}
}

// TestLifetimesGoOn: an element has the time left that it has on the host.
func TestLifetimesGoOn(t *testing.T) {
	host, twin := pair(t)
	apply(t, host, readable(`table inet s { set timed { type ipv4_addr; flags timeout; elements = { 192.0.2.1 timeout 1h expires 30m }; }; }`))
	if notes := load(t, host, twin); len(notes) != 0 {
		t.Fatalf("not loaded: %q", notes)
	}
	out, err := twin.Run(t.Context(), "nft", "list", "set", "inet", "s", "timed")
	must(t, err)
	m := regexp.MustCompile(`expires ([0-9a-z]+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no lifetime: %s", out)
	}
	left, err := time.ParseDuration(m[1])
	must(t, err)
	if left > 30*time.Minute || left < 29*time.Minute {
		t.Errorf("an element that had 30 minutes left has %v", left)
	}
}
