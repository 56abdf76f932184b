package nft

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestLoadOfRandomRulesets builds rulesets from a grammar and wants nft(8) to say of
// the twin what it says of the host. What nft refuses of a ruleset is left out.
func TestLoadOfRandomRulesets(t *testing.T) {
	const rulesets = 4
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	g := &grammar{Rand: rand.New(rand.NewPCG(seed, 2))}
	kept, all := 0, 0
	for range rulesets {
		host, twin := pair(t)
		lines := g.ruleset()
		cmd := exec.Command("sh", "-c", `while read -r line; do nft "$line" 2>/dev/null; done`)
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		_ = host.Do(cmd.Run) // the last line may be one of those refused
		notes := load(t, host, twin)
		want, got := listed(t, host), listed(t, twin)
		if len(notes) != 0 || want != got {
			same(t, want, got)
			t.Fatalf("notes %q; the host is made by\n%s", notes, strings.Join(lines, "\n"))
		}
		kept, all = kept+strings.Count(want, "\n"), all+len(lines)
	}
	t.Logf("%d lines, %d listed", all, kept)
	if kept < all/2 {
		t.Errorf("%d lines are listed of %d: they say little", kept, all)
	}
}

// grammar makes lines for nft(8).
type grammar struct {
	*rand.Rand
	chains []string // of the table at hand, without hooks
}

func (g *grammar) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g *grammar) ruleset() (lines []string) {
	for n, family := range []string{"inet", "ip", "ip6", "inet", "arp", "bridge", "netdev"} {
		if g.IntN(3) == 0 {
			continue
		}
		lines = append(lines, g.table(family, fmt.Sprintf("t%d", n))...)
	}
	return lines
}

func (g *grammar) table(family, name string) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	at := family + " " + name
	add("add table %s%s", at, g.pick("", "", "", " { flags dormant; }", ` { comment "x y"; }`))
	add("add set %s s4 { type ipv4_addr; %s elements = { %s } ; }", at, g.pick("", "flags interval;", "flags timeout; timeout 2h;", "counter;"), g.pick("192.0.2.1", "10.0.0.1, 10.0.0.2"))
	add("add set %s nets { type ipv4_addr; flags interval; %s elements = { 10.%d.0.0/16, 172.16.0.1-172.16.0.%d } ; }", at, g.pick("", "auto-merge;"), g.IntN(9), 2+g.IntN(9))
	add("add set %s ports { type inet_service; flags interval; elements = { %d, 1000-%d } ; }", at, 1+g.IntN(99), 1001+g.IntN(9999))
	add("add set %s pairs { type ipv4_addr . inet_service; %s elements = { 192.0.2.1 . %d } ; }", at, g.pick("", "flags interval;", "flags timeout;"), 1+g.IntN(9999))
	add("add set %s seen { type ipv4_addr; flags dynamic,timeout; timeout %dm; size 100; }", at, 1+g.IntN(9))
	add("add map %s m { type ipv4_addr : mark; elements = { 192.0.2.1 : %#x } ; }", at, g.IntN(255))
	add("add counter %s hits", at)
	add("add quota %s q { over %d mbytes }", at, 1+g.IntN(99))
	add("add limit %s l { rate %d/minute }", at, 1+g.IntN(99))
	g.chains = nil
	for i := range 1 + g.IntN(3) {
		g.chains = append(g.chains, fmt.Sprintf("c%d", i))
		add("add chain %s c%d", at, i)
	}
	add("add map %s v { type inet_service : verdict; elements = { 22 : accept, %d : jump %s } ; }", at, 23+g.IntN(99), g.chains[0])
	bases := map[string][]string{
		"arp":    {"filter hook input priority 0", "filter hook output priority 5"},
		"netdev": {`filter hook ingress device "eth0" priority -5`, `filter hook ingress devices = { eth0, eth1 } priority 1`},
		"bridge": {"filter hook forward priority -200", "filter hook input priority 0"},
	}[family]
	if bases == nil {
		bases = []string{
			"filter hook input priority filter", "filter hook output priority mangle + 3", "filter hook prerouting priority raw", "route hook output priority -150",
			"nat hook output priority -100", "nat hook postrouting priority srcnat", "nat hook prerouting priority dstnat", "filter hook forward priority security",
		}
	}
	base := bases[g.IntN(len(bases))]
	add("add chain %s base { type %s ; policy accept ; }", at, base)
	for _, c := range append(g.chains, "base") {
		for range 2 + g.IntN(8) {
			add("add rule %s %s %s", at, c, g.rule(strings.HasPrefix(base, "nat ") && c == "base"))
		}
	}
	return lines
}

func (g *grammar) rule(nat bool) string {
	var words []string
	for range g.IntN(3) {
		words = append(words, g.match())
	}
	if g.IntN(2) == 0 {
		words = append(words, g.pick("counter", `log prefix "p " level warn`, "limit rate 5/second burst 9 packets", "counter name hits", "quota name q", "limit name l",
			"meta mark set meta mark and 0xff or 0x10", "meta mark set ip saddr map @m", "ct mark set 0x7", "add @seen { ip saddr }", "update @seen { ip saddr timeout 9m limit rate 2/second }",
			"ip dscp set cs3", "tcp option maxseg size set rt mtu", "meta priority set 1:2", "notrack", "meta nftrace set 1"))
	}
	if nat {
		return strings.Join(append(words, g.pick("masquerade", "masquerade random", "snat ip to 192.0.2.9", "dnat ip to 10.0.0.5:80", "redirect to :8080", "accept", "return")), " ")
	}
	return strings.Join(append(words, g.pick("accept", "drop", "continue", "return", "reject", "reject with tcp reset", "queue num 3 bypass", "goto "+g.chains[len(g.chains)-1],
		"tcp dport vmap @v", "udp dport vmap { 1-5 : accept, 9 : drop }")), " ")
}

func (g *grammar) match() string {
	return g.pick("ip saddr @s4", "ip daddr @nets", "ip saddr != 10.0.0.0/8", "ip saddr . tcp dport @pairs", "tcp dport @ports", "tcp dport { 22, 80-90 }", "udp sport != 53",
		"ct state established,related", "ct state new", "ct direction original", "ct mark and 0x3 == 0x1", "meta mark 0x5", "meta l4proto { tcp, udp }", "meta nfproto ipv6",
		"iifname eth0", `oifname "eth*"`, "iif lo", "oif { eth0, eth1 }", "meta skuid 0", "meta cgroup 3", "ip6 saddr fe80::/10", "ip6 nexthdr icmpv6", "icmp type echo-request",
		"icmpv6 type { nd-neighbor-solicit, echo-reply }", "tcp flags syn / syn,ack", "ip ttl < 5", "fib saddr . iif oif missing", "fib daddr type local", "socket transparent 1",
		"ip protocol icmp", "meta length 100-200", "th dport 443", "@th,16,16 53", "numgen inc mod 3 0", "jhash ip saddr mod 4 1", "rt nexthop 192.0.2.1", "ether saddr 02:00:00:00:00:01",
		"vlan id 7", "arp operation request", "meta pkttype broadcast", "meta hour \"08:00\"-\"17:00\"", "ct original ip daddr 10.0.0.1", "ipsec in reqid 1", "exthdr hbh exists", "tcp option sack-perm exists")
}
