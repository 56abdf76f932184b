package xtables

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// rules are of every table, with matches and targets of every size.
const rules = `
iptables-legacy -P INPUT DROP
iptables-legacy -N DOCKER-USER
iptables-legacy -N EMPTY
iptables-legacy -A FORWARD -j DOCKER-USER
iptables-legacy -A DOCKER-USER -s 10.0.0.0/8 -j RETURN
iptables-legacy -A DOCKER-USER -g EMPTY
iptables-legacy -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables-legacy -A INPUT -i lo -m comment --comment loopback
iptables-legacy -A INPUT -p tcp -m multiport --dports 22,80,8000:8080 -m limit --limit 5/s -j ACCEPT
iptables-legacy -A INPUT ! -p udp -m addrtype --dst-type LOCAL -j REJECT --reject-with icmp-host-prohibited
iptables-legacy -A INPUT -p tcp -m hashlimit --hashlimit-name h --hashlimit-mode srcip --hashlimit-above 10/sec -j LOG --log-prefix "in "
iptables-legacy -A OUTPUT -m owner --uid-owner 1000-1010 -j ACCEPT
iptables-legacy -t nat -A OUTPUT -p tcp -m owner ! --uid-owner 123 -j REDIRECT --to-ports 12345
iptables-legacy -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
iptables-legacy -t mangle -A PREROUTING -m mark --mark 0x1/0xff -j MARK --set-xmark 0x10/0xf0
iptables-legacy -t mangle -A PREROUTING -p tcp -j TPROXY --on-port 7893 --tproxy-mark 0x1/0x1
iptables-legacy -t raw -A PREROUTING -m rpfilter --invert -j DROP
iptables-legacy -t security -A INPUT -p icmp -j ACCEPT
ip6tables-legacy -P FORWARD DROP
ip6tables-legacy -A INPUT -p ipv6-icmp -j ACCEPT
ip6tables-legacy -A INPUT -m rt --rt-type 0 -j DROP
ip6tables-legacy -A INPUT -p tcp -m multiport --sports 1,2 -j REJECT --reject-with icmp6-adm-prohibited
ip6tables-legacy -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 12345
`

// pair is a host and a twin without rules.
func pair(t *testing.T) (l *netlab.Lab, host, twin *netlab.Node) {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.NetNS, nstest.Tool("iptables-legacy"), nstest.Tool("ip6tables-legacy"), nstest.Tool("sh"))
	l = netlab.New()
	t.Cleanup(func() { l.Close() })
	host, err := l.Node("host")
	must(t, err)
	twin, err = l.Node("twin")
	must(t, err)
	return l, host, twin
}

// give runs commands in a node. The lock of xtables is the test's own.
func give(t *testing.T, n *netlab.Node, commands string) {
	t.Helper()
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
	for line := range strings.Lines(commands) {
		if line = strings.TrimSpace(line); line != "" {
			_, err := n.Run(t.Context(), "sh", "-c", line)
			must(t, err)
		}
	}
}

func load(t *testing.T, host, twin *netlab.Node) {
	t.Helper()
	ts, err := Read(int(host.NS().Fd()))
	must(t, err)
	notes, err := Load(int(twin.NS().Fd()), ts)
	must(t, err)
	if len(notes) != 0 {
		t.Errorf("not loaded: %q", notes)
	}
}

var moves = regexp.MustCompile(`(?m)^#.*$\n`)

// saved is what the tools say of a node, with counters.
func saved(t *testing.T, n *netlab.Node) string {
	t.Helper()
	var all strings.Builder
	for _, tool := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		out, err := n.Run(t.Context(), tool, "-c")
		must(t, err)
		all.WriteString(moves.ReplaceAllString(out, ""))
	}
	return all.String()
}

func items(t *testing.T, n *netlab.Node) []Item {
	t.Helper()
	is, err := Chains(int(n.NS().Fd()))
	must(t, err)
	return is
}

func TestLoadIsFaithful(t *testing.T) {
	_, host, twin := pair(t)
	give(t, host, rules)
	c, err := host.Dial(t.Context(), "udp", "127.0.0.1:9")
	must(t, err)
	_, err = c.Write([]byte("counted"))
	must(t, errors.Join(err, c.Close()))
	load(t, host, twin)
	want, got := saved(t, host), saved(t, twin)
	if want != got || !strings.Contains(want, "[1:35]") {
		t.Errorf("host and twin:\n%s\n%s", strings.Join(nstest.Difference(want, got), "\n"), got)
	}
	if h, in := items(t, host), items(t, twin); !slices.Equal(h, in) || len(in) < 25 {
		t.Errorf("host\n%v\ntwin\n%v", h, in)
	}
	must(t, Clear(int(twin.NS().Fd())))
	if left := items(t, twin); len(left) != 0 {
		t.Errorf("after a clearing: %v", left)
	}
	load(t, host, twin) // over tables that are there
	if got := saved(t, twin); got != want {
		t.Errorf("the second time:\n%s", strings.Join(nstest.Difference(want, got), "\n"))
	}
}

// TestArptables has no tool to make rules with, so it makes a table itself.
func TestArptables(t *testing.T) {
	_, host, twin := pair(t)
	arp := families[2]
	must(t, host.Do(func() error {
		return arp.withSocket(func(fd int) error {
			was, _, err := arp.info(fd, "filter")
			if err != nil {
				return err
			}
			mine := was.fresh()
			// The policy of the first hook, INPUT, is in the data of the first target.
			binary.NativeEndian.PutUint32(mine.entries[arp.head+targetHeader:], ^uint32(0)) // -NF_DROP - 1
			return mine.replace(fd, nil, was.count)
		})
	}))
	load(t, host, twin)
	want := []Item{
		{"chain arp filter INPUT", "policy DROP { 0 rules #e3b0c442 }"},
		{"chain arp filter OUTPUT", "policy ACCEPT { 0 rules #e3b0c442 }"},
	}
	if got := items(t, twin); len(got) < 2 || !slices.Equal(got[:2], want) {
		t.Errorf("the twin has %v, want %v", got, want)
	}
	must(t, Clear(int(twin.NS().Fd())))
	if got := items(t, twin); len(got) != 0 {
		t.Errorf("after a clearing: %v", got)
	}
}

// TestNothingIsAskedFor: a host that never used a table has none afterwards.
func TestNothingIsAskedFor(t *testing.T) {
	_, host, twin := pair(t)
	load(t, host, twin)
	for _, n := range []*netlab.Node{host, twin} {
		must(t, n.Do(func() error {
			for _, f := range families {
				names, err := f.tables()
				if err != nil || len(names) != 0 {
					t.Errorf("%s of %s: %v, %v", f.tool, n.Name, names, err)
				}
			}
			return nil
		}))
	}
}

// TestEveryEditIsSeen makes one small edit after another, and looks at what only
// moved.
func TestEveryEditIsSeen(t *testing.T) {
	_, host, _ := pair(t)
	give(t, host, rules)
	for _, c := range []struct {
		edit string
		keys []string
	}{
		{"iptables-legacy -P OUTPUT DROP", []string{"chain ip filter OUTPUT"}},
		{"iptables-legacy -I INPUT -j ACCEPT", []string{"chain ip filter INPUT"}},
		{"iptables-legacy -D DOCKER-USER 1", []string{"chain ip filter DOCKER-USER"}},
		{"iptables-legacy -N MORE", []string{"chain ip filter MORE"}},
		{"iptables-legacy -R FORWARD 1 -j EMPTY", []string{"chain ip filter FORWARD"}},
		{"iptables-legacy -t nat -F", []string{"chain ip nat OUTPUT", "chain ip nat POSTROUTING"}},
		{"ip6tables-legacy -F INPUT", []string{"chain ip6 filter INPUT"}},
		{"iptables-legacy -Z", nil},
		{"iptables-legacy -L; ip6tables-legacy -t raw -L", nil},
	} {
		before := items(t, host)
		give(t, host, c.edit)
		after := items(t, host)
		var keys []string
		for _, i := range slices.Concat(before, after) {
			if slices.Contains(before, i) != slices.Contains(after, i) && !slices.Contains(keys, i.Key) {
				keys = append(keys, i.Key)
			}
		}
		// A table without any rule is as one that is not there.
		keys = slices.DeleteFunc(keys, func(k string) bool { return k == "chain ip nat PREROUTING" || k == "chain ip nat INPUT" })
		if !slices.Equal(keys, c.keys) {
			t.Errorf("%s: changed %q, want %q", c.edit, keys, c.keys)
		}
	}
}

// TestOwnersAreThoseOfTheNamespace loads a rule about uid 1000 into a namespace
// where that is another uid of the machine.
func TestOwnersAreThoseOfTheNamespace(t *testing.T) {
	l, host, _ := pair(t)
	nstest.Require(t, nstest.Tool("nsenter"), nstest.Tool("bash"))
	ns, pid := nstest.Shifted(t)
	twin, err := l.Hold("twin", int(ns.Fd()))
	must(t, err)
	must(t, twin.Up("lo"))
	give(t, host, "iptables-legacy -A OUTPUT -p udp --dport 9 -m owner --uid-owner 1000")
	load(t, host, twin)
	for _, id := range []string{"1000", "1001"} {
		out, err := exec.Command("nsenter", "-t", strconv.Itoa(pid), "-U", "-n", "-S", id, "-G", id, "bash", "-c", "echo > /dev/udp/127.0.0.1/9").CombinedOutput()
		if err != nil {
			t.Fatalf("send as %s: %v: %s", id, err, out)
		}
	}
	if got := saved(t, twin); !strings.Contains(got, "[1:29] -A OUTPUT") {
		t.Errorf("the rule did not count the one packet of uid 1000:\n%s", got)
	}
}

// TestLearn reads of rules what package nft reads of the same rules.
func TestLearn(t *testing.T) {
	_, host, _ := pair(t)
	give(t, host, `
iptables-legacy -t nat -N REDSOCKS
iptables-legacy -t nat -A OUTPUT -p tcp -j REDSOCKS
iptables-legacy -t nat -A REDSOCKS -m owner --uid-owner 123 -j RETURN
iptables-legacy -t nat -A REDSOCKS -p tcp -j REDIRECT --to-ports 12345
iptables-legacy -t nat -A OUTPUT -p udp --dport 53 -j DNAT --to-destination 127.0.0.1:5353
iptables-legacy -t nat -A PREROUTING -p tcp -j REDIRECT --to-ports 9999
iptables-legacy -t nat -A POSTROUTING -s 10.8.0.0/24 -j MASQUERADE
ip6tables-legacy -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 12346
iptables-legacy -t raw -A PREROUTING -m rpfilter --invert -j DROP
iptables-legacy -t mangle -A PREROUTING -m mark --mark 0x1/0xff -j MARK --set-xmark 0x10/0xf0
iptables-legacy -t mangle -A PREROUTING -m connmark --mark 0x2/0x3 -j CONNMARK --set-xmark 0x400/0xff00
iptables-legacy -t mangle -A PREROUTING -j CONNMARK --restore-mark
iptables-legacy -A FORWARD -j NFQUEUE --queue-num 5
iptables-legacy -A OUTPUT -j NFQUEUE --queue-num 5 --queue-bypass
iptables-legacy -t mangle -A PREROUTING -p tcp -j TPROXY --on-port 7893 --tproxy-mark 0x3000/0xf000`)
	ts, err := Read(int(host.NS().Fd()))
	must(t, err)
	var got nft.Seen
	Learn(ts, &got)
	want := nft.Seen{
		OutputNAT: true, SourceNAT: true, Owners: []string{"ip nat chain REDSOCKS"}, RPFilter: []string{"ip raw chain PREROUTING"},
		Queues: []string{"ip filter chain FORWARD"},
		Redirects: []nft.Redirect{
			{Proto: unix.IPPROTO_UDP, Addr: netip.MustParseAddr("127.0.0.1"), Port: 5353, Four: true},
			{Proto: unix.IPPROTO_TCP, Port: 12345, Four: true},
			{Proto: unix.IPPROTO_TCP, Port: 12346, Six: true},
		},
		Marks: []nft.Mark{{Value: 0x1, Mask: 0xff}, {Value: 0x2, Mask: 0x3}, {Value: 0x10, Mask: 0xf0}, {Value: 0x400, Mask: 0xff00}, {Value: 0x3000, Mask: 0xf000}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzChains decodes tables of any bytes: it must end, within them.
func FuzzChains(f *testing.F) {
	good := (&Table{family: families[0], valid: 0b01110, hook: make([]uint32, 5), underflow: make([]uint32, 5)}).fresh()
	f.Add(good.entries, uint32(0))
	f.Add(good.entries[:200], uint32(152))
	f.Add([]byte{}, uint32(1))
	f.Fuzz(func(t *testing.T, b []byte, at uint32) {
		for _, fam := range families {
			n := len(fam.hooks)
			tab := &Table{family: fam, name: "filter", valid: 0xff, hook: make([]uint32, n), underflow: make([]uint32, n), entries: b}
			tab.hook[0], tab.underflow[1] = at, at
			tab.pristine()
			tab.without()
			Learn([]*Table{tab}, &nft.Seen{})
			for e := range tab.walk() {
				e.canonical(map[uint32]string{at: "x"})
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
