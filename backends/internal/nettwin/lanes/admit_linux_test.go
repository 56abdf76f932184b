package lanes

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// silence is how long an answer is waited for that must not come. What comes
// takes a few milliseconds.
const silence = 300 * time.Millisecond

func flow(w way.Lane, src netip.AddrPort) way.Flow {
	to := server4
	if src.Addr().Is6() {
		to = server6
	}
	return way.Flow{Proto: unix.IPPROTO_TCP, Src: src, Dst: netip.AddrPortFrom(netip.MustParseAddr(to), 80), Lane: w}
}

// TestAdmitLetsOneFlowIn connects across interfaces under strict filtering.
func TestAdmitLetsOneFlowIn(t *testing.T) {
	l := newLab(t)
	ls := l.lanes(t, Options{})
	w := l.via("198.51.100.1", l.eth1)
	mark, err := ls.Lane(w)
	must(t, err)
	made := l.dump(t)

	other, _ := l.bound(t, mark, "198.51.100.2")
	defer unix.Close(other)
	if got := greeting(t, other, silence); got != "" {
		t.Fatalf("the filter lets answers in that nobody admitted: seen as %q", got)
	}
	fd, at := l.bound(t, mark, "198.51.100.2")
	defer unix.Close(fd)
	f := flow(w, at)
	must(t, ls.Admit(f))
	must(t, ls.Admit(f)) // as often as it is released
	ls.Release(f)
	if got := greeting(t, fd, 3*time.Second); got != gw2at4 {
		t.Errorf("an admitted flow is seen as %q, want %s", got, gw2at4)
	}
	another, _ := l.bound(t, mark, "198.51.100.2")
	defer unix.Close(another)
	if got := greeting(t, another, silence); got != "" {
		t.Errorf("another flow came in by the rule of the first: seen as %q", got)
	}
	if got := l.seen(t, 0, "192.0.2.2"); got != gw1at4 {
		t.Errorf("the host's own traffic is seen as %q, want %s", got, gw1at4)
	}
	ls.Release(f)
	ls.Release(f) // once too often
	l.same(t, made)
}

// TestAdmitMakesNoRuleWithoutNeed reads the settings of the kernel as the kernel
// does: the larger value counts, and another interface alone is no reason.
func TestAdmitMakesNoRuleWithoutNeed(t *testing.T) {
	l := newLab(t)
	ls := l.lanes(t, Options{})
	for _, c := range []struct {
		name, all, eth1, src, gateway string
		host                          string // what the host is told, and untold
		need                          bool
	}{
		{name: "strict on the interface", all: "0", eth1: "1", src: "198.51.100.2", gateway: "198.51.100.1", need: true},
		{name: "strict everywhere", all: "1", eth1: "0", src: "198.51.100.2", gateway: "198.51.100.1", need: true},
		{name: "loose on the interface is larger", all: "1", eth1: "2", src: "198.51.100.2", gateway: "198.51.100.1"},
		{name: "off", all: "0", eth1: "0", src: "198.51.100.2", gateway: "198.51.100.1"},
		{name: "strict, the host goes that way itself", all: "1", eth1: "1", src: "198.51.100.2", gateway: "198.51.100.1", host: "route %s " + server4 + " via 198.51.100.1"},
		{
			name: "strict, one hop of several goes that way", all: "1", eth1: "1", src: "198.51.100.2", gateway: "198.51.100.1",
			host: "route %s " + server4 + " nexthop via 192.0.2.1 nexthop via 198.51.100.1",
		},
		{name: "loose, no way back", all: "2", eth1: "2", src: "198.51.100.2", gateway: "198.51.100.1", host: "route %s unreachable " + server4, need: true},
		{name: "off, no way back", all: "0", eth1: "0", src: "198.51.100.2", gateway: "198.51.100.1", host: "route %s unreachable " + server4},
		{name: "IPv6 has no such filter", all: "1", eth1: "1", src: "2001:db8:2::2", gateway: "2001:db8:2::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			must(t, l.host.Sysctl("ipv4/conf/all/rp_filter", c.all))
			must(t, l.host.Sysctl("ipv4/conf/eth1/rp_filter", c.eth1))
			if c.host != "" {
				l.ip(t, strings.Replace(c.host, "%s", "add", 1))
				defer l.ip(t, strings.Replace(c.host, "%s", "del", 1))
			}
			w := l.via(c.gateway, l.eth1)
			mark, err := ls.Lane(w)
			must(t, err)
			before := l.dump(t)
			fd, at := l.bound(t, mark, c.src)
			defer unix.Close(fd)
			f := flow(w, at)
			must(t, ls.Admit(f))
			if made := l.dump(t) != before; made != c.need {
				t.Errorf("a rule was made: %v, want %v", made, c.need)
			}
			want := map[bool]string{false: gw2at4, true: gw2at6}[w.Six]
			if got := greeting(t, fd, 3*time.Second); got != want {
				t.Errorf("the flow is seen as %q, want %s", got, want)
			}
			ls.Release(f)
			l.same(t, before)
		})
	}
}

// TestAdmitDatagrams lets the answers to a datagram socket in, and has to say no
// for what has no ports.
func TestAdmitDatagrams(t *testing.T) {
	l := newLab(t)
	ls := l.lanes(t, Options{})
	w := l.via("198.51.100.1", l.eth1)
	before := l.dump(t)
	f := way.Flow{
		Proto: unix.IPPROTO_ICMP, Lane: w,
		Src: netip.MustParseAddrPort("198.51.100.2:0"), Dst: netip.MustParseAddrPort(server4 + ":0"),
	}
	wantLimit(t, ls.Admit(f), way.ReversePath)
	l.same(t, before)
	must(t, l.host.Sysctl("ipv4/conf/all/rp_filter", "2"))
	must(t, ls.Admit(f))
	ls.Release(f)
	must(t, l.host.Sysctl("ipv4/conf/all/rp_filter", "1"))

	f.Proto, f.Src, f.Dst = unix.IPPROTO_UDP, netip.MustParseAddrPort("198.51.100.2:5000"), netip.MustParseAddrPort(server4+":53")
	must(t, ls.Admit(f))
	back, err := ls.kernel.reverse(f)
	must(t, err)
	if back != here {
		t.Errorf("the way back of an admitted datagram is %d, want %d", back, here)
	}
	f.Dst = netip.MustParseAddrPort(server4 + ":54")
	if back, err = ls.kernel.reverse(f); err != nil || back != elsewhere {
		t.Errorf("the way back of another is %d (%v), want %d", back, err, elsewhere)
	}
}

// TestFilterRulesAreLimits has a packet filter that drops what arrives on another
// interface. It really does, and no rule of ours would help.
func TestFilterRulesAreLimits(t *testing.T) {
	l := newLab(t)
	l.run(t, l.host, "nft", `table ip6 rp { chain in { type filter hook prerouting priority -290; fib saddr . mark . iif oif missing drop; }; }`)
	ls := l.lanes(t, Options{Filters: func() ([]string, error) { return []string{"ip6 rp chain in"}, nil }})
	for _, c := range []struct {
		name string
		lane way.Lane
		src  string
		lost bool
	}{
		{"by the host's own interface", l.via("2001:db8:1::1", l.eth0), "2001:db8:1::2", false},
		{"by another", l.via("2001:db8:2::1", l.eth1), "2001:db8:2::2", true},
		{"by another, of the other family", l.via("198.51.100.1", l.eth1), "198.51.100.2", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			mark, err := ls.Lane(c.lane)
			must(t, err)
			fd, at := l.bound(t, mark, c.src)
			defer unix.Close(fd)
			if err := ls.Admit(flow(c.lane, at)); c.lost {
				limit := wantLimit(t, err, way.ReversePath)
				if !strings.Contains(limit.Reason, "ip6 rp chain in") || limit.Subject != "eth1 via 2001:db8:2::1" {
					t.Errorf("the limit says %q of %q", limit.Reason, limit.Subject)
				}
			} else {
				must(t, err)
			}
			wait := 3 * time.Second
			if c.lost {
				wait = silence
			}
			if got := greeting(t, fd, wait); (got == "") != c.lost {
				t.Errorf("seen as %q, want lost: %v", got, c.lost)
			}
		})
	}
}

// TestAdmissionsAreCounted opens as many as there may be.
func TestAdmissionsAreCounted(t *testing.T) {
	l := newLab(t)
	ls := l.lanes(t, Options{})
	w := l.via("198.51.100.1", l.eth1)
	_, err := ls.Lane(w)
	must(t, err)
	made := l.dump(t)
	at := func(i int) way.Flow {
		return flow(w, netip.AddrPortFrom(netip.MustParseAddr("198.51.100.2"), uint16(20000+i)))
	}
	for i := range admissions {
		must(t, ls.Admit(at(i)))
	}
	wantLimit(t, ls.Admit(at(admissions)), way.Load)
	ls.Release(at(7))
	must(t, ls.Admit(at(admissions)))
	for i := range admissions + 1 {
		ls.Release(at(i))
	}
	l.same(t, made)
}
