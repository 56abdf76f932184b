package nettwin

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestLookupsAreTheHosts makes hosts of random addresses, nexthop objects, routes and
// rules, and asks both kernels the same questions: the answers, and the refusals, are
// equal to the last attribute.
func TestLookupsAreTheHosts(t *testing.T) {
	const hosts, questions = 12, 400
	l := newLab(t, nstest.Tool("ip"))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	g := &policyMaker{rand.New(rand.NewPCG(seed, 1))}
	routed, refused := 0, 0
	for n := range hosts {
		for _, line := range nexthops {
			l.onHost(t, line)
		}
		lines := map[string]string{"-4": g.host(false), "-6": g.host(true)}
		for family, text := range lines {
			l.force(t, family, text)
		}
		l.mirror(t, Options{Unrecorded: true})
		notes := l.twin.Notes()
		host, inside := newAsker(t, l, int(l.host.NS().Fd())), newAsker(t, l, int(l.inside.NS().Fd()))
		for range questions {
			q := g.question()
			was, now := host.ask(q), inside.ask(q)
			if was != now {
				t.Errorf("host %d: %v:\nhost %s\ntwin %s\nnotes %q", n, q, was, now, notes)
			}
			if strings.HasPrefix(was, "error") {
				refused++
			} else {
				routed++
			}
		}
		host.conn.Close()
		inside.conn.Close()
		must(t, l.twin.Close())
		if t.Failed() {
			t.Fatalf("the host is made by\n%s\n%s", lines["-4"], lines["-6"])
		}
		l.clear(t)
	}
	t.Logf("%d lookups with a way, %d without", routed, refused)
	if routed < hosts*questions/4 || refused < hosts {
		t.Errorf("%d lookups with a way, %d without: they say little", routed, refused)
	}
}

// force runs lines of ip as far as the kernel takes them. The last is one that it
// takes: ip stops at what it cannot read.
func (l *testLab) force(t *testing.T, family, text string) {
	t.Helper()
	out, _ := l.host.Run(t.Context(), "sh", "-c", "ip "+family+" -force -batch - 2>&1 <<'END'\n"+text+"\nrule add pref 99 lookup 202\nEND\n")
	if rules := l.onHost(t, "ip "+family+" rule"); !strings.Contains(rules, "lookup 202") {
		t.Fatalf("ip did not come to the end of\n%s\n%s", text, out)
	}
}

// clear brings the host back to what the lab gave it.
func (l *testLab) clear(t *testing.T) {
	t.Helper()
	for _, line := range []string{
		"ip rule flush", "ip rule add pref 32766 lookup main", "ip rule add pref 32767 lookup default",
		"ip -6 rule flush", "ip -6 rule add pref 32766 lookup main",
		"ip nexthop flush", "ip addr flush dev eth0 scope global", "ip addr flush dev eth1 scope global", "ip addr flush dev lo scope global",
		"ip route flush table 200", "ip route flush table 201", "ip -6 route flush table 200", "ip -6 route flush table 201",
		"ip route flush table main", "ip -6 route flush table main proto static", "ip -6 route flush table main proto boot",
	} {
		_, _ = l.host.Run(t.Context(), fields(line)...) // a table may be empty
	}
	must(t, l.host.Address("eth0", "192.0.2.2/24", "2001:db8:1::2/64"))
	must(t, l.host.Address("eth1", "198.51.100.2/24", "2001:db8:2::2/64"))
	must(t, l.host.Route("0.0.0.0/0", "192.0.2.1"))
	must(t, l.host.Route("::/0", "2001:db8:1::1"))
}

// policyMaker makes hosts and questions. Prefixes are nested and few, so that they
// meet.
type policyMaker struct{ *rand.Rand }

func (g *policyMaker) pick(of ...string) string { return of[g.IntN(len(of))] }

// maybe returns a text three times of ten.
func (g *policyMaker) maybe(format string, args ...any) string {
	if g.IntN(10) < 3 {
		return fmt.Sprintf(format, args...)
	}
	return ""
}

func (g *policyMaker) addr(six bool) string {
	if six {
		return fmt.Sprintf("2001:db8:%x::%s", 0x80+g.IntN(3), g.pick("1", "8001", "c001", "c0a1"))
	}
	return fmt.Sprintf("10.%d.%d.%d", g.IntN(3), g.IntN(3)*64, 1+g.IntN(3)*80)
}

func (g *policyMaker) prefix(six bool) string {
	a := netip.MustParseAddr(g.addr(six))
	bits := []int{8, 14, 16, 18, 24, 25, 32}
	if six {
		bits = []int{32, 46, 48, 64, 112, 127, 128}
	}
	return netip.PrefixFrom(a, bits[g.IntN(len(bits))]).Masked().String()
}

func (g *policyMaker) own(six bool) string {
	if six {
		return g.pick("2001:db8:1::2", "2001:db8:2::2", "2001:db8:1::30", "2001:db8:2::40", "2001:db8:ff::1")
	}
	return g.pick("192.0.2.2", "198.51.100.2", "192.0.2.30", "198.51.100.40", "10.255.0.1")
}

func (g *policyMaker) via(six bool) string {
	if six {
		return g.pick("via 2001:db8:1::1 dev eth0", "via 2001:db8:1::fe dev eth0", "via 2001:db8:2::1 dev eth1", "via fe80::1 dev eth0", "dev eth1", "via 2001:db8:77::1 dev eth0 onlink")
	}
	return g.pick("via 192.0.2.1 dev eth0", "via 192.0.2.254 dev eth0", "via 198.51.100.1 dev eth1", "via 192.0.2.77", "dev eth1", "via 203.0.113.99 dev eth0 onlink", "via inet6 2001:db8:1::fe dev eth0")
}

func (g *policyMaker) route(six bool) string {
	table := g.pick("", "", " table 200", " table 201")
	if g.IntN(8) == 0 {
		return fmt.Sprintf("route add %s %s%s", g.pick("blackhole", "unreachable", "prohibit", "throw"), g.prefix(six), table)
	}
	dst := g.pick("default", g.prefix(six), g.prefix(six), g.prefix(six))
	how := g.via(six)
	switch g.IntN(8) {
	case 0:
		how = fmt.Sprintf("nexthop %s weight %d nexthop %s weight %d", g.pick("via 192.0.2.1", "via 192.0.2.254"), 1+g.IntN(4), "via 198.51.100.1", 1+g.IntN(4))
		if six {
			how = "nexthop via 2001:db8:1::1 nexthop via 2001:db8:1::fe nexthop via 2001:db8:2::1"
		}
	case 1:
		how = fmt.Sprintf("nhid %d", 10+g.IntN(len(nexthops)))
	}
	tos := ""
	if !six {
		tos = g.maybe(" tos 0x10")
	}
	return "route add " + dst + tos + table + g.maybe(" metric %d", 1+g.IntN(3)) + g.maybe(" src %s", g.own(six)) +
		g.maybe(" mtu %d", 1300+g.IntN(9)) + g.maybe(" advmss 1200") + g.maybe(" proto %d", 16+g.IntN(200)) + " " + how
}

func (g *policyMaker) rule(six bool) string {
	s := fmt.Sprintf("rule add pref %d", 10+g.IntN(40))
	if g.IntN(6) == 0 {
		s = "rule add not" + strings.TrimPrefix(s, "rule add")
	}
	s += g.maybe(" from %s", g.pick(g.own(six), g.prefix(six))) + g.maybe(" to %s", g.prefix(six)) + g.maybe(" fwmark %#x/%#x", 1+g.IntN(3), 1+g.IntN(3)) +
		g.maybe(" iif %s", g.pick("lo", "eth0")) + g.maybe(" oif eth%d", g.IntN(2)) + g.maybe(" uidrange %d-%d", g.IntN(3), 3+g.IntN(3))
	if g.IntN(4) == 0 {
		s += " ipproto " + g.pick("tcp", "udp") + g.maybe(" dport %s", g.pick("80", "50-90")) + g.maybe(" sport %s", g.pick("1000-2000", "1500"))
	}
	if !six {
		s += g.maybe(" tos 0x10")
	}
	switch g.IntN(8) {
	case 0:
		return s + " " + g.pick("blackhole", "unreachable", "prohibit")
	case 1:
		return s + fmt.Sprintf(" goto %d", 60+g.IntN(3))
	}
	return s + " lookup " + g.pick("200", "201", "main") + g.maybe(" suppress_prefixlength %d", []int{0, 16, 24}[g.IntN(3)])
}

// nexthops are there for routes to name.
var nexthops = []string{
	"ip nexthop add id 10 via 192.0.2.254 dev eth0", "ip nexthop add id 11 via 198.51.100.1 dev eth1", "ip nexthop add id 12 group 10/11,3",
	"ip nexthop add id 13 blackhole", "ip nexthop add id 14 via 2001:db8:1::fe dev eth0", "ip nexthop add id 15 via 2001:db8:2::1 dev eth1",
	"ip nexthop add id 16 group 14/15",
}

// host says what to add of a family. The kernel refuses some of it.
func (g *policyMaker) host(six bool) string {
	addresses := []string{"192.0.2.30/24 dev eth0", "198.51.100.40/25 dev eth1", "10.255.0.1/32 dev lo", "10.7.0.1 peer 10.7.0.2/32 dev eth1"}
	nobody := "0.0.0.0/32"
	if six {
		addresses = []string{"2001:db8:1::30/64 dev eth0 nodad", "2001:db8:2::40/64 dev eth1 nodad preferred_lft 0", "2001:db8:ff::1/128 dev lo", "2001:db8:1::31/64 dev eth0 nodad home"}
		nobody = "::/128"
	}
	var lines []string
	for _, a := range addresses {
		if g.IntN(2) == 0 {
			lines = append(lines, "addr add "+a)
		}
	}
	for range 5 + g.IntN(40) {
		lines = append(lines, g.route(six))
	}
	for i := range 3 { // for rules that go to them
		lines = append(lines, fmt.Sprintf("rule add pref %d to %s lookup 200", 60+i, nobody))
	}
	for range g.IntN(12) {
		lines = append(lines, g.rule(six))
	}
	if g.IntN(4) == 0 {
		lines = append(lines, "route add local "+g.prefix(six)+" dev lo table local")
	}
	return strings.Join(lines, "\n")
}

// lookup is one question.
type lookup struct {
	src, dst     netip.Addr
	oif          string
	mark, uid    uint32
	proto        uint8
	sport, dport uint16
	tos          uint8
	fib          bool
}

func (g *policyMaker) question() lookup {
	six := g.IntN(2) == 0
	q := lookup{dst: netip.MustParseAddr(g.addr(six)), mark: uint32(g.IntN(4)), uid: uint32(g.IntN(6)), fib: g.IntN(4) == 0}
	if g.IntN(10) == 0 {
		q.dst = netip.MustParseAddr(g.own(six))
	}
	if g.IntN(2) == 0 {
		q.src = netip.MustParseAddr(g.own(six))
	}
	if g.IntN(6) == 0 {
		q.oif = g.pick("eth0", "eth1", "lo")
	}
	if g.IntN(2) == 0 {
		q.proto = []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP}[g.IntN(2)]
		q.sport, q.dport = uint16(1000+500*g.IntN(3)), uint16(40+20*g.IntN(4))
	}
	if !six && g.IntN(4) == 0 {
		q.tos = 0x10
	}
	return q
}

// kernelAsker puts questions to the kernel of one namespace.
type kernelAsker struct {
	conn *rtnl.Conn
	have *network
}

func newAsker(t *testing.T, l *testLab, ns int) *kernelAsker {
	t.Helper()
	c, err := rtnl.Dial(ns)
	must(t, err)
	have, err := observe(ns)
	must(t, err)
	return &kernelAsker{c, have}
}

func (a *kernelAsker) ask(q lookup) string {
	m := make([]byte, unix.SizeofRtMsg)
	m[0], m[1], m[3] = unix.AF_INET, uint8(q.dst.BitLen()), q.tos
	if q.dst.Is6() {
		m[0] = unix.AF_INET6
	}
	flags := uint32(unix.RTM_F_LOOKUP_TABLE)
	if q.fib {
		flags |= unix.RTM_F_FIB_MATCH
	}
	binary.NativeEndian.PutUint32(m[8:], flags)
	m = rtnl.Append(m, unix.RTA_DST, q.dst.AsSlice())
	if q.src.IsValid() {
		m[2] = uint8(q.src.BitLen())
		m = rtnl.Append(m, unix.RTA_SRC, q.src.AsSlice())
	}
	if q.oif != "" {
		m = rtnl.AppendUint32(m, unix.RTA_OIF, uint32(a.have.byName(q.oif)))
	}
	m = rtnl.AppendUint32(m, unix.RTA_MARK, q.mark)
	m = rtnl.AppendUint32(m, unix.RTA_UID, q.uid)
	if q.proto != 0 {
		m = rtnl.Append(m, unix.RTA_IP_PROTO, []byte{q.proto})
		m = rtnl.Append(m, unix.RTA_SPORT, binary.BigEndian.AppendUint16(nil, q.sport))
		m = rtnl.Append(m, unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, q.dport))
	}
	got, err := a.conn.Get(unix.RTM_GETROUTE, m)
	if err != nil {
		return "error " + err.Error()
	}
	// Until its first rule a namespace has the local table within the main one.
	return strings.Replace(rtnl.RouteText(got, a.have.name), " table local local ", " table main local ", 1)
}
