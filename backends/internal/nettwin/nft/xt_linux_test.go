package nft

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// xtables are rules that iptables-nft and its like make: some become expressions
// of nftables, the others stay matches and targets of iptables.
const xtables = `
iptables -P INPUT DROP
iptables -P FORWARD DROP
iptables -N DOCKER-USER
iptables -A FORWARD -j DOCKER-USER
iptables -A DOCKER-USER -j RETURN
iptables -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -A INPUT -i lo -m comment --comment "loopback" -j ACCEPT
iptables -A INPUT -p tcp -m multiport --dports 22,80,8000:8080 -j ACCEPT
iptables -A INPUT ! -p udp -m addrtype --dst-type LOCAL -j ACCEPT
iptables -A INPUT -p udp -m udp --dport 53 -m string --algo bm --string abc -j DROP
iptables -A INPUT -p icmp --icmp-type echo-request -m limit --limit 5/sec --limit-burst 9 -j ACCEPT
iptables -A INPUT -p tcp --syn -m connlimit --connlimit-above 20 -j REJECT --reject-with tcp-reset
iptables -A INPUT -p tcp -m hashlimit --hashlimit-name h --hashlimit-mode srcip --hashlimit-above 10/sec -j DROP
iptables -A INPUT -p tcp -m recent --name ssh --update --seconds 60 -j DROP
iptables -A INPUT -m iprange --src-range 10.0.0.1-10.0.0.9 -m length --length 0:500 -m ttl --ttl-gt 3 -j ACCEPT
iptables -A INPUT -p tcp --tcp-flags SYN,ACK SYN -m tcpmss --mss 1:500 -j DROP
iptables -A INPUT -m statistic --mode random --probability 0.5 -m u32 --u32 "6&0xFF=1" -j LOG --log-prefix "in " --log-level 4
iptables -A INPUT -m time --timestart 09:00 --timestop 17:00 -m mac --mac-source 02:00:00:00:00:01 -j ACCEPT
iptables -A INPUT -p tcp -m bpf --bytecode "1,6 0 0 1" -m state --state NEW -j ACCEPT
iptables -A INPUT -m set --match-set missing src -j DROP
iptables -A OUTPUT -m owner --uid-owner 1000-1010 -j ACCEPT
iptables -A OUTPUT -m owner --gid-owner 100 -m cpu --cpu 0 -j ACCEPT
iptables -t nat -A OUTPUT -p tcp -m owner ! --uid-owner 123 -j REDIRECT --to-ports 12345
iptables -t nat -A OUTPUT -p udp --dport 53 -j DNAT --to-destination 127.0.0.1:5353
iptables -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
iptables -t nat -A POSTROUTING -p tcp -j SNAT --to-source 192.0.2.2-192.0.2.3:1024-2048
iptables -t nat -A PREROUTING -d 10.0.0.0/24 -j NETMAP --to 10.1.0.0/24
iptables -t mangle -A PREROUTING -m mark --mark 0x1/0xff -j MARK --set-xmark 0x10/0xf0
iptables -t mangle -A PREROUTING -m connmark --mark 0x2 -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff
iptables -t mangle -A PREROUTING -p tcp -j TPROXY --on-port 7893 --tproxy-mark 0x1/0x1
iptables -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
iptables -t mangle -A POSTROUTING -j DSCP --set-dscp-class CS1
iptables -t mangle -A POSTROUTING -p udp --dport 68 -j CHECKSUM --checksum-fill
iptables -t raw -A PREROUTING -m rpfilter --invert -j DROP
iptables -t raw -A PREROUTING -p tcp --dport 21 -j CT --helper ftp
iptables -t raw -A OUTPUT -p udp -j CT --notrack
iptables -t raw -A PREROUTING -m socket --transparent -j NFLOG --nflog-group 5
ip6tables -P INPUT DROP
ip6tables -A INPUT -p ipv6-icmp -j ACCEPT
ip6tables -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT
ip6tables -A INPUT -p tcp -m multiport --sports 1,2 -j REJECT --reject-with icmp6-adm-prohibited
ip6tables -A INPUT -m rt --rt-type 0 -j DROP
ip6tables -A INPUT -m hl --hl-eq 255 -m frag --fragmore -j ACCEPT
ip6tables -A OUTPUT -m owner --uid-owner 5 -j ACCEPT
ip6tables -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 12345
ip6tables -t mangle -A PREROUTING -p udp -j TPROXY --on-port 7893 --tproxy-mark 0x1/0x1
ip6tables -t nat -A POSTROUTING -p tcp -j SNAT --to-source 2001:db8::1
ebtables -P FORWARD DROP
ebtables -A INPUT -p IPv4 --ip-proto udp --ip-dport 53 -j ACCEPT
ebtables -A INPUT -p ARP --arp-op Request -j ACCEPT
ebtables -A OUTPUT -s 02:00:00:00:00:01 -o eth0 --limit 5/s -j DROP
ebtables -A FORWARD --pkttype-type broadcast -j mark --mark-set 5
arptables -A INPUT --source-ip 192.0.2.9 -j DROP
`

// give runs the commands on the host and returns those that failed: a tool or a
// kernel may lack an extension.
func give(t *testing.T, n *netlab.Node, commands string) (failed []string) {
	t.Helper()
	for line := range strings.Lines(commands) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, err := n.Run(t.Context(), "sh", "-c", line); err != nil {
			failed = append(failed, line)
		}
	}
	return failed
}

// TestLoadOfIptables compares what each tool says of host and twin, in a namespace
// of ours and in one that a user namespace owns.
func TestLoadOfIptables(t *testing.T) {
	t.Run("ours", func(t *testing.T) {
		host, twin := pair(t)
		compareTools(t, host, twin)
	})
	t.Run("of a user namespace", func(t *testing.T) {
		host, _ := pair(t)
		l := netlab.New()
		t.Cleanup(func() { l.Close() })
		twin, _ := shifted(t, l)
		compareTools(t, host, twin)
	})
}

func compareTools(t *testing.T, host, twin *netlab.Node) {
	t.Helper()
	tools := []string{"iptables", "ip6tables", "ebtables", "arptables"}
	for _, tool := range tools {
		nstest.Require(t, nstest.Tool(tool))
	}
	if failed := give(t, host, xtables); !slices.Equal(failed, []string{"iptables -A INPUT -m set --match-set missing src -j DROP"}) {
		t.Errorf("the host does not take:\n%s", strings.Join(failed, "\n"))
	}
	if notes := load(t, host, twin); len(notes) != 0 {
		t.Errorf("not loaded:\n%s", strings.Join(notes, "\n"))
	}
	same(t, listed(t, host), listed(t, twin))
	for _, tool := range tools {
		want, got := saved(t, host, tool), saved(t, twin, tool)
		if want != got {
			t.Errorf("%s:\n%s", tool, strings.Join(nstest.Difference(want, got), "\n"))
		}
	}
}

var volatile = regexp.MustCompile(`(?m)^#.*$|\[\d+:\d+\]`)

func saved(t *testing.T, n *netlab.Node, tool string) string {
	t.Helper()
	out, err := n.Run(t.Context(), tool+"-save")
	must(t, err)
	return volatile.ReplaceAllString(out, "")
}

// shifted is a node whose network namespace a user namespace owns, and the number
// of a process there.
func shifted(t *testing.T, l *netlab.Lab) (*netlab.Node, string) {
	t.Helper()
	nstest.Require(t, nstest.Tool("nsenter"))
	ns, pid := nstest.Shifted(t)
	n, err := l.Hold("shifted", int(ns.Fd()))
	must(t, err)
	must(t, n.Up("lo"))
	return n, strconv.Itoa(pid)
}

// TestOwnersAreThoseOfTheNamespace loads rules about uid 1000 into a namespace
// where that is another uid of the machine, and sends as uid 1000 of there.
func TestOwnersAreThoseOfTheNamespace(t *testing.T) {
	host, _ := pair(t)
	nstest.Require(t, nstest.Tool("iptables"), nstest.Tool("sh"), nstest.Tool("bash"))
	l := netlab.New()
	t.Cleanup(func() { l.Close() })
	twin, pid := shifted(t, l)
	if failed := give(t, host, "iptables -A OUTPUT -m owner --uid-owner 1000 -p udp\n"+
		"nft 'add table ip n; add chain ip n o { type filter hook output priority 5; }; add rule ip n o meta skuid 1000 udp dport 9 counter'"); failed != nil {
		t.Fatal(failed)
	}
	if notes := load(t, host, twin); len(notes) != 0 {
		t.Fatalf("not loaded: %q", notes)
	}
	for _, id := range []string{"1000", "1001"} {
		out, err := exec.Command("nsenter", "-t", pid, "-U", "-n", "-S", id, "-G", id, "bash", "-c", "echo > /dev/udp/127.0.0.1/9").CombinedOutput()
		if err != nil {
			t.Fatalf("send as %s: %v: %s", id, err, out)
		}
	}
	out, err := twin.Run(t.Context(), "nft", "list", "ruleset")
	must(t, err)
	if n := strings.Count(out, "counter packets 1 "); n != 2 {
		t.Errorf("%d of the rules counted the one packet of uid 1000, want 2:\n%s", n, out)
	}
}

// ipset makes an empty set of the ipset subsystem, which no twin gets.
func ipset(t *testing.T, n *netlab.Node, name string) {
	t.Helper()
	const subsystem, create, protocol, setname, typename, revision, family, data = 6, 2, 1, 2, 3, 4, 5, 7
	var a []byte
	a = rtnl.Append(a, protocol, []byte{7})
	a = rtnl.AppendString(a, setname, name)
	a = rtnl.AppendString(a, typename, "hash:ip")
	a = rtnl.Append(a, revision, []byte{0})
	a = rtnl.Append(a, family, []byte{unix.NFPROTO_IPV4})
	a = rtnl.Append(a, data|unix.NLA_F_NESTED, nil)
	s, err := open(int(n.NS().Fd()))
	must(t, err)
	defer s.Close()
	b := appendMessage(nil, create, unix.NLM_F_ACK|unix.NLM_F_CREATE, 1, unix.NFPROTO_IPV4, a)
	b[5] = subsystem // the second byte of the type
	must(t, s.send(nil, b))
	ms, err := s.receive(0)
	must(t, err)
	must(t, outcome(ms[0].Data))
}

// TestRefusedRulesAreNamed: what the kernel does not take for another namespace
// is left out by name, and the rest is loaded.
func TestRefusedRulesAreNamed(t *testing.T) {
	host, twin := pair(t)
	nstest.Require(t, nstest.Tool("iptables"))
	ipset(t, host, "blocked")
	apply(t, host, readable("table inet fine { chain in { type filter hook input priority 0; tcp dport 1 drop; }; }"))
	if failed := give(t, host, `
iptables -A INPUT -p tcp --dport 1 -j DROP
iptables -A INPUT -m set --match-set blocked src -j DROP
iptables -A INPUT -m set --match-set blocked dst -j DROP
iptables -A INPUT -p tcp --dport 2 -j DROP
iptables -A OUTPUT -m set --match-set blocked dst -j DROP`); failed != nil {
		t.Fatal(failed)
	}
	// A table that is there already is not replaced.
	apply(t, twin, "add table ip other")
	apply(t, host, "add table ip other")
	notes := load(t, host, twin)
	want := []string{
		"nftables rule in chain ip filter INPUT is not in the twin, 2 times: no such file or directory (iptables match set)",
		"nftables rule in chain ip filter OUTPUT is not in the twin: no such file or directory (iptables match set)",
		"nftables table ip other is not in the twin: file exists",
	}
	if !slices.Equal(notes, want) {
		t.Errorf("notes\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
	out := listed(t, twin)
	for _, want := range []string{"table inet fine", "tcp dport 1 drop", "tcp dport 2 counter", "chain OUTPUT"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the twin:\n%s", want, out)
		}
	}
}
