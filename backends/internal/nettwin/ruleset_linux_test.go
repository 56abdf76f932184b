package nettwin

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// dockerHost is a firewall of iptables as docker and its user leave it.
const dockerHost = `
iptables -P INPUT DROP
iptables -P FORWARD DROP
iptables -N DOCKER-USER
iptables -N DOCKER-FORWARD
iptables -A FORWARD -j DOCKER-USER
iptables -A FORWARD -j DOCKER-FORWARD
iptables -A DOCKER-USER -j RETURN
iptables -A INPUT -i lo -j ACCEPT
iptables -A INPUT -m conntrack --ctstate INVALID -j DROP
iptables -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -A INPUT -p tcp -m multiport --dports 22,443 -j ACCEPT
iptables -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
ip6tables -P INPUT DROP
ip6tables -P FORWARD DROP
ip6tables -A INPUT -i lo -j ACCEPT
ip6tables -A INPUT -p ipv6-icmp -j ACCEPT
ip6tables -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
`

// firewalldHost is a firewall of nftables as firewalld makes it.
const firewalldHost = `
table inet firewalld {
	chain mangle_PREROUTING { type filter hook prerouting priority -140; policy accept;
	}
	chain filter_PREROUTING {
		type filter hook prerouting priority 10; policy accept;
		icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
		meta nfproto ipv6 fib saddr . mark . iif oif missing drop
	}
	chain filter_INPUT {
		type filter hook input priority 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_INPUT_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_INPUT_ZONES { iifname vmap { "eth0" : goto filter_IN_public, "eth1" : goto filter_IN_public }
	}
	chain filter_IN_public {
		tcp dport 22 accept
		meta l4proto { icmp, ipv6-icmp } accept
	}
	chain filter_FORWARD { type filter hook forward priority 10; policy drop;
	}
	chain filter_OUTPUT {
		type filter hook output priority 10; policy accept;
		ct state { established, related } accept
		oifname "lo" accept
		ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002:0000::/24 } reject with icmpv6 addr-unreachable
	}
}
`

// firewalled is a lab whose host has rules: commands, or in the language of nft.
func firewalled(t *testing.T, rules string) *testLab {
	t.Helper()
	l := newLab(t, nstest.NFT, nstest.Tool("nft"), nstest.Tool("ip"), nstest.Tool("sh"),
		nstest.Tool("iptables"), nstest.Tool("ip6tables"), nstest.Tool("iptables-legacy"), nstest.Tool("ip6tables-legacy"))
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
	if strings.HasPrefix(strings.TrimSpace(rules), "table") {
		file := t.TempDir() + "/rules"
		must(t, os.WriteFile(file, []byte(rules), 0o600))
		rules = "nft -f " + file
	}
	do(t, l.host, rules)
	echo(t, l.server, "tcp", ":80")
	echoUDP(t, l.server, ":53")
	return l
}

// do runs commands in a node, one a line.
func do(t *testing.T, n *netlab.Node, commands string) {
	t.Helper()
	for line := range strings.Lines(commands) {
		if line = strings.TrimSpace(line); line != "" {
			_, err := n.Run(t.Context(), "sh", "-c", line)
			must(t, err)
		}
	}
}

// outcome is what a client in a node meets.
type outcome string

const (
	answered    outcome = "answered"
	refused     outcome = "refused"
	silence     outcome = "silence"
	unreachable outcome = "unreachable"
)

// patience is how long a client waits that is expected to meet something.
func (o outcome) patience() time.Duration {
	if o == silence {
		return 700 * time.Millisecond
	}
	return 5 * time.Second
}

// meets connects to the server over IPv4 and IPv6 at once.
func meets(n *netlab.Node, want [2]outcome) (got [2]outcome) {
	var both sync.WaitGroup
	for i, addr := range []string{"203.0.113.80:80", "[2001:db8:80::80]:80"} {
		both.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), want[i].patience())
			defer cancel()
			got[i] = meet(ctx, n, addr)
		})
	}
	both.Wait()
	return got
}

func meet(ctx context.Context, n *netlab.Node, addr string) outcome {
	c, err := n.Dial(ctx, "tcp", addr)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return refused
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EADDRNOTAVAIL):
		return unreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return silence
	case err != nil:
		return outcome(err.Error())
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		return outcome(err.Error())
	}
	if _, err := c.Read(make([]byte, 64)); err != nil {
		return outcome(err.Error())
	}
	return answered
}

// TestCandidateFirewall changes the twin of a firewalled host as somebody does who
// cuts himself off, looks at the host at the same moment, and then does the same to
// the host: what was met inside is what is met outside.
func TestCandidateFirewall(t *testing.T) {
	for _, c := range []struct {
		name, change string
		want         [2]outcome
	}{
		{"the host's rules as they are", "", [2]outcome{answered, answered}},
		{"iptables -F INPUT under policy DROP", "iptables -F INPUT\nip6tables -F INPUT", [2]outcome{silence, silence}},
		{"only of IPv4", "iptables -F INPUT", [2]outcome{silence, answered}},
		{"nft flush ruleset", "nft flush ruleset", [2]outcome{answered, answered}},
		{"iptables -P OUTPUT DROP", "iptables -P OUTPUT DROP\nip6tables -P OUTPUT DROP", [2]outcome{silence, silence}},
		{"a reset for the port", "iptables -I OUTPUT -p tcp --dport 80 -j REJECT --reject-with tcp-reset\nip6tables -I OUTPUT -p tcp --dport 80 -j REJECT --reject-with tcp-reset", [2]outcome{refused, refused}},
		{"a second firewall", "nft 'add table inet mine; add chain inet mine in { type filter hook input priority 5; policy drop; }'", [2]outcome{silence, silence}},
		{"answers dropped before routing", "nft 'add table ip6 mine; add chain ip6 mine pre { type filter hook prerouting priority -300; }; add rule ip6 mine pre tcp sport 80 drop'", [2]outcome{answered, silence}},
		{"answers dropped at the link", "nft 'add table netdev mine; add chain netdev mine in { type filter hook ingress device eth0 priority 0; }; add rule netdev mine in tcp sport 80 drop'", [2]outcome{silence, silence}},
		{"iptables-legacy beside it", "iptables-legacy -A OUTPUT -p tcp --dport 80 -j DROP\nip6tables-legacy -P INPUT DROP", [2]outcome{silence, silence}},
		{"translated to a closed port", "iptables -t nat -A OUTPUT -p tcp --dport 80 -j DNAT --to-destination 203.0.113.80:81", [2]outcome{refused, answered}},
		{"no default routes", "ip route del default\nip -6 route del default", [2]outcome{unreachable, unreachable}},
		{"no way out by a rule", "ip rule add pref 9 unreachable\nip -6 rule add pref 9 unreachable", [2]outcome{unreachable, unreachable}},
		{"the link down", "ip link set eth0 down", [2]outcome{unreachable, unreachable}},
		{
			"the link down and up, and all put back",
			"ip link set eth0 down\nip link set eth0 up\nip addr add 2001:db8:1::2/64 dev eth0 nodad\nip route replace default via 192.0.2.1\nip -6 route replace default via 2001:db8:1::1",
			[2]outcome{answered, answered},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := firewalled(t, dockerHost)
			l.mirror(t, Options{})
			do(t, l.inside, c.change)
			if got := meets(l.inside, c.want); got != c.want {
				t.Errorf("inside, v4 and v6: %q, want %q", got, c.want)
			}
			fine := [2]outcome{answered, answered}
			if got := meets(l.host, fine); got != fine {
				t.Errorf("the host at the same moment: %q", got)
			}
			do(t, l.host, c.change)
			if got := meets(l.host, c.want); got != c.want {
				t.Errorf("the host after the same change: %q, want %q", got, c.want)
			}
		})
	}
}

// TestFirewalledHostsReachOut: nothing in the way the relay answers offends the
// rules that real answers pass, and reading, loading and traffic are no change.
func TestFirewalledHostsReachOut(t *testing.T) {
	for name, rules := range map[string]string{
		"docker":    dockerHost,
		"firewalld": firewalldHost,
		"legacy":    strings.NewReplacer("ip6tables", "ip6tables-legacy", "iptables", "iptables-legacy").Replace(dockerHost),
		"asleep":    "table inet asleep {\nflags dormant\nchain in {\ntype filter hook input priority 0; policy drop;\n}\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			l := firewalled(t, rules)
			greet(t, l.host, "127.0.0.1:7890", "host-proxy")
			greet(t, l.host, "[::1]:7890", "host-proxy-v6")
			l.mirror(t, Options{Relay: []uint16{7890}})
			for _, n := range l.twin.Notes() {
				if strings.Contains(n, "nftables") || strings.Contains(n, "iptables") {
					t.Errorf("note: %s", n)
				}
			}
			fine := [2]outcome{answered, answered}
			if got := meets(l.inside, fine); got != fine {
				t.Errorf("v4 and v6: %q", got)
			}
			for _, addr := range []string{"203.0.113.80:53", "[2001:db8:80::80]:53"} {
				if err := asked(t, l.inside, addr); err != nil {
					t.Errorf("ask %s: %v", addr, err)
				}
			}
			for addr, want := range map[string]string{"127.0.0.1:7890": "host-proxy", "[::1]:7890": "host-proxy-v6"} {
				if got, err := l.ask(addr); got != want || err != nil {
					t.Errorf("%s: got %q, %v", addr, got, err)
				}
			}
			if got := l.lines(t); len(got) != 0 {
				t.Errorf("nobody changed anything, but:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

// TestTableOfOurName: the twin's own table is not mixed with one of the host's.
func TestTableOfOurName(t *testing.T) {
	l := firewalled(t, "table inet "+tableName+" {\nchain in {\ntype filter hook input priority 0; tcp dport 7890 drop\n}\n}\ntable inet other {\n}\n")
	l.mirror(t, Options{Relay: []uint16{7890}})
	if notes := strings.Join(l.twin.Notes(), "\n"); !strings.Contains(notes, "nftables table inet "+tableName+" is not in the twin") {
		t.Errorf("notes %q", notes)
	}
	if out, err := l.inside.Run(t.Context(), "nft", "list", "table", "inet", "other"); err != nil {
		t.Errorf("the other table: %v: %s", err, out)
	}
	fine := [2]outcome{answered, answered}
	if got := meets(l.inside, fine); got != fine {
		t.Errorf("v4 and v6: %q", got)
	}
}

// asked sends a datagram and waits for the answer.
func asked(t *testing.T, n *netlab.Node, addr string) error {
	t.Helper()
	c, err := n.Dial(t.Context(), "udp", addr)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(5*time.Second)))
	_, err = c.Write([]byte("?"))
	must(t, err)
	_, err = c.Read(make([]byte, 64))
	return err
}

// TestRulesetInDifference: what changed of the firewall is listed, and a reset
// takes it back, whichever of the two kinds of tables it is in.
func TestRulesetInDifference(t *testing.T) {
	l := firewalled(t, dockerHost)
	do(t, l.host, "iptables-legacy -A INPUT -p tcp --dport 9 -j DROP")
	l.mirror(t, Options{})
	do(t, l.inside, "iptables -F INPUT\niptables-legacy -A INPUT -p tcp --dport 10 -j DROP\nip6tables-legacy -P FORWARD DROP\niptables-legacy -t nat -L")
	got := strings.Join(l.lines(t), "\n")
	for _, want := range []string{
		"nft replace chain ip filter INPUT", "xtables replace chain ip filter INPUT policy ACCEPT { 2 rules", "xtables add chain ip6 filter FORWARD policy DROP { 0 rules",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "nat") {
		t.Errorf("looking at a table is a change:\n%s", got)
	}
	must(t, l.twin.Reset(t.Context()))
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("after a reset:\n%s", strings.Join(got, "\n"))
	}
	out, err := l.inside.Run(t.Context(), "sh", "-c", "iptables-save; iptables-legacy-save")
	must(t, err)
	if !strings.Contains(out, "ESTABLISHED") || !strings.Contains(out, "--dport 9 ") || strings.Contains(out, "--dport 10 ") {
		t.Errorf("after a reset the rules are not the host's:\n%s", out)
	}
}

// TestElementsOfSetsEnd: that the time of an element is up is no change, but that
// it was deleted before is one.
func TestElementsOfSetsEnd(t *testing.T) {
	l := firewalled(t, `table inet f {
	set bans { type ipv4_addr; flags timeout; elements = { 192.0.2.66 timeout 1500ms, 192.0.2.67 timeout 1h }
	}
}
`)
	l.mirror(t, Options{})
	eventually(t, "the element has ended", func() bool {
		out, err := l.inside.Run(t.Context(), "nft", "list", "set", "inet", "f", "bans")
		must(t, err)
		return !strings.Contains(out, "192.0.2.66")
	})
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("nobody changed anything, but:\n%s", strings.Join(got, "\n"))
	}
	do(t, l.inside, "nft delete element inet f bans '{ 192.0.2.67 }'")
	if got := l.lines(t); len(got) != 1 || !strings.HasPrefix(got[0], "nft delete element inet f bans 0xc0000243 ") {
		t.Errorf("after a deletion: %q", got)
	}
}

// TestOwnersAreNoted: the host's rules about users see the relay, and say so.
func TestOwnersAreNoted(t *testing.T) {
	l := firewalled(t, "iptables -A OUTPUT -m owner --uid-owner 1000 -j ACCEPT\niptables-legacy -t mangle -A OUTPUT -m owner --gid-owner 5 -j ACCEPT")
	l.mirror(t, Options{})
	notes := strings.Join(l.twin.Notes(), "\n")
	if want := "rules that ask whose a packet is (ip filter chain OUTPUT, ip mangle chain OUTPUT)"; !strings.Contains(notes, want) {
		t.Errorf("no %q in the notes:\n%s", want, notes)
	}
}
