package lanes

import (
	"net/netip"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// TestTrafficTakesTheLane sends a marked socket by each kind of lane, on a host
// that forwards nothing and whose firewall drops what is forwarded. The host's
// own traffic goes on as before.
func TestTrafficTakesTheLane(t *testing.T) {
	l := newLab(t)
	before := l.dump(t)
	ls := l.lanes(t, Options{})
	for _, c := range []struct {
		name string
		lane way.Lane
		src  string
		want string
	}{
		{"IPv6 by another gateway", l.via("2001:db8:2::1", l.eth1), "2001:db8:2::2", gw2at6},
		{"IPv6 by a link-local gateway", l.via("fe80::1", l.eth1), "2001:db8:2::2", gw2at6},
		{"IPv6 with a source of another interface", l.via("fe80::1", l.eth1), "2001:db8:1::2", gw2at6},
		{"IPv6 on the link", way.Lane{Index: l.eth1, Six: true}, "2001:db8:2::2", gw2at6},
		{"IPv6 as the host does", l.via("2001:db8:1::1", l.eth0), "2001:db8:1::2", gw1at6},
		{"IPv4 as the host does", l.via("192.0.2.1", l.eth0), "192.0.2.2", gw1at4},
	} {
		t.Run(c.name, func(t *testing.T) {
			mark, err := ls.Lane(c.lane)
			must(t, err)
			if got := l.seen(t, mark, c.src); got != c.want {
				t.Errorf("the server saw %q, want %s", got, c.want)
			}
		})
	}
	// Strict filtering aside, IPv4 takes the lane too.
	for _, c := range []string{"all", "eth1"} {
		must(t, l.host.Sysctl("ipv4/conf/"+c+"/rp_filter", "0"))
	}
	for _, c := range []struct {
		name string
		lane way.Lane
	}{
		{"IPv4 by another gateway", l.via("198.51.100.1", l.eth1)},
		{"IPv4 on the link", way.Lane{Index: l.eth1}},
		{"IPv4 by an IPv6 gateway", way.Lane{Index: l.eth1, NextHop: netip.MustParseAddr("fe80::1")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mark, err := ls.Lane(c.lane)
			must(t, err)
			if got := l.seen(t, mark, "198.51.100.2"); got != gw2at4 {
				t.Errorf("the server saw %q, want %s", got, gw2at4)
			}
		})
	}
	if got := l.seen(t, 0, "192.0.2.2"); got != gw1at4 {
		t.Errorf("the host's own traffic is seen as %q, want %s", got, gw1at4)
	}
	for _, c := range []string{"all", "eth1"} {
		must(t, l.host.Sysctl("ipv4/conf/"+c+"/rp_filter", "1"))
	}
	must(t, ls.Close())
	l.same(t, before)
}

// TestOneLaneForOneWay asks for the same way in different words.
func TestOneLaneForOneWay(t *testing.T) {
	l := newLab(t)
	before := l.dump(t)
	ls := l.lanes(t, Options{})
	l.same(t, before) // nothing until the first lane
	same := []way.Lane{
		{Index: l.eth1, NextHop: netip.MustParseAddr("198.51.100.1")},
		{Index: l.eth1, NextHop: netip.MustParseAddr("::ffff:198.51.100.1")},
	}
	first, err := ls.Lane(same[0])
	must(t, err)
	again, err := ls.Lane(same[1])
	must(t, err)
	other, err := ls.Lane(l.via("fe80::1%eth1", l.eth1))
	must(t, err)
	if first != again || first == other {
		t.Errorf("marks %#x, %#x and %#x; want the first two equal and the third another", first, again, other)
	}
	if _, err := ls.Lane(way.Lane{Index: l.eth1, NextHop: netip.MustParseAddr("192.0.2.1"), Six: true}); err == nil {
		t.Error("an IPv6 lane has an IPv4 gateway")
	}
	must(t, ls.Close())
	if _, err := ls.Lane(same[0]); err == nil {
		t.Error("a lane was made after Close")
	}
	l.same(t, before)
}

// TestBitsOfOthersLeaveTheLane has a host that sets a bit of its own on what it
// sends, as kube-proxy does, and looks up the way again.
func TestBitsOfOthersLeaveTheLane(t *testing.T) {
	l := newLab(t)
	l.run(t, l.host, "nft", `table inet kube { chain out { type route hook output priority -150; meta mark set meta mark or 0x4000; }; }`)
	ls := l.lanes(t, Options{})
	mark, err := ls.Lane(l.via("2001:db8:2::1", l.eth1))
	must(t, err)
	if got := l.seen(t, mark, "2001:db8:2::2"); got != gw2at6 {
		t.Errorf("the server saw %q, want %s", got, gw2at6)
	}
	if got := l.seen(t, 0, "2001:db8:1::2"); got != gw1at6 {
		t.Errorf("the host's own traffic is seen as %q, want %s", got, gw1at6)
	}
}
