package lanes

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// TestEnsureMakesAgain has others take away what lanes need, one thing after the
// other. Without Ensure the lane is not the way that is taken; after it, it is.
func TestEnsureMakesAgain(t *testing.T) {
	l := newLab(t)
	must(t, l.host.Sysctl("ipv4/conf/all/rp_filter", "0"))
	must(t, l.host.Sysctl("ipv4/conf/eth1/rp_filter", "0"))
	ls := l.lanes(t, Options{})
	must(t, ls.Ensure()) // of nothing
	if ls.kernel != nil || ls.claim != nil {
		t.Error("Ensure looked at the host for nothing")
	}
	mark, err := ls.Lane(l.via("198.51.100.1", l.eth1))
	must(t, err)
	made := l.dump(t)
	for _, c := range []struct {
		name      string
		by        []string
		otherwise string // how traffic is seen before Ensure
	}{
		{"nothing", nil, gw2at4},
		{"the rule", []string{fmt.Sprintf("rule del fwmark %#x/%#x", mark, mask)}, gw1at4},
		{"every rule with our protocol", []string{"rule flush protocol 91"}, gw1at4},
		{"the routes", []string{fmt.Sprintf("route flush table %d", mark)}, gw1at4},
		{"the way, not the fence", []string{fmt.Sprintf("route del default via 198.51.100.1 dev eth1 table %d", mark)}, ""},
		{"the fence", []string{fmt.Sprintf("route del unreachable default metric 4294967295 table %d", mark)}, gw2at4},
		{"everything", []string{"rule flush protocol 91", fmt.Sprintf("route flush table %d", mark)}, gw1at4},
		{"a flap of the link", []string{"link set eth1 down", "link set eth1 up"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, line := range c.by {
				l.ip(t, line)
			}
			if got := l.seen(t, mark, "198.51.100.2"); got != c.otherwise {
				t.Errorf("before, the server saw %q, want %q", got, c.otherwise)
			}
			must(t, ls.Ensure())
			if got := l.seen(t, mark, "198.51.100.2"); got != gw2at4 {
				t.Errorf("after it, the server saw %q, want %s", got, gw2at4)
			}
		})
	}
	l.ip(t, "-6 addr add 2001:db8:2::2/64 dev eth1 nodad") // the flap took it
	l.settled(t)
	l.same(t, made)
}

// TestEnsureMovesBeforeNewRules has the host get a rule that comes before ours,
// and lose it again.
func TestEnsureMovesBeforeNewRules(t *testing.T) {
	l := newLab(t)
	l.ip(t, "route add default via 192.0.2.1 table 77")
	ls := l.lanes(t, Options{})
	w := l.via("198.51.100.1", l.eth1)
	mark, err := ls.Lane(w)
	must(t, err)
	fd, at := l.bound(t, mark, "198.51.100.2")
	defer unix.Close(fd)
	must(t, ls.Admit(flow(w, at)))
	made := l.dump(t)

	l.ip(t, "rule add pref 300 lookup 77")
	must(t, ls.Ensure())
	if r := ruleOf(t, ls, mark, false); r.pref != 299 {
		t.Errorf("the rule is at %d, want 299", r.pref)
	}
	if got := greeting(t, fd, silence*10); got != gw2at4 {
		t.Errorf("an admitted flow is seen as %q, want %s", got, gw2at4)
	}
	l.ip(t, "rule add pref 0 lookup 77")
	must(t, ls.Ensure())
	_, err = ls.Lane(w)
	wantLimit(t, err, way.Route)

	l.ip(t, "rule del pref 0 lookup 77")
	if _, err = ls.Lane(w); err != nil { // without waiting for Ensure
		t.Errorf("the lane does not come back: %v", err)
	}
	l.ip(t, "rule del pref 300 lookup 77")
	must(t, ls.Ensure())
	l.same(t, made)
	ls.Release(flow(w, at))
	must(t, ls.Ensure())
	if rules, err := ls.kernel.rules(false); err != nil || len(rules) != 4 {
		t.Errorf("%d rules (%v), want the kernel's three and the lane's", len(rules), err)
	}
}

// TestLaneSaysWhatIsInItsWay meets what the host cannot be made to do: a limit of
// the right kind each, and nothing is left of the attempt.
func TestLaneSaysWhatIsInItsWay(t *testing.T) {
	l := newLab(t)
	l.ip(t, "link add idle type veth peer name idle2")
	idle := l.index(t, "idle")
	l.ip(t, "link add no6 type veth peer name no62")
	l.ip(t, "link set no6 up")
	must(t, l.host.Sysctl("ipv6/conf/no6/disable_ipv6", "1"))
	ls := l.lanes(t, Options{})
	_, err := ls.Lane(l.via("198.51.100.1", l.eth1))
	must(t, err)
	before := l.dump(t)
	for _, c := range []struct {
		name    string
		lane    way.Lane
		kind    way.Kind
		subject string
	}{
		{"no interface", l.via("198.51.100.1", 9999), way.Link, "interface 9999 via 198.51.100.1"},
		{"no interface, IPv6", l.via("fe80::1", 9999), way.Link, "interface 9999 via fe80::1"},
		{"an interface that is down", l.via("192.0.2.9", idle), way.Link, "idle via 192.0.2.9"},
		{"an interface that is down, IPv6", l.via("fe80::9", idle), way.Link, "idle via fe80::9"},
		{"an interface that is down, on the link", way.Lane{Index: idle}, way.Link, "idle"},
		{"an interface without IPv6", l.via("fe80::9", l.index(t, "no6")), way.Link, "no6 via fe80::9"},
		{"the host as its own gateway", l.via("192.0.2.2", l.eth0), way.Route, "eth0 via 192.0.2.2"},
		{"the host as its own gateway, IPv6", l.via("2001:db8:1::2", l.eth0), way.Route, "eth0 via 2001:db8:1::2"},
		{"a group as gateway", l.via("224.0.0.9", l.eth0), way.Route, "eth0 via 224.0.0.9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ls.Lane(c.lane)
			if limit := wantLimit(t, err, c.kind); limit.Subject != c.subject {
				t.Errorf("the limit is about %q, want %q", limit.Subject, c.subject)
			}
			l.same(t, before)
		})
	}
}

// TestLanesKnowWhenTheirLinkIsDown: a lane that was made is fenced meanwhile.
func TestLanesKnowWhenTheirLinkIsDown(t *testing.T) {
	l := newLab(t)
	ls := l.lanes(t, Options{})
	w := l.via("198.51.100.1", l.eth1)
	mark, err := ls.Lane(w)
	must(t, err)
	l.ip(t, "link set eth1 down")
	must(t, ls.Ensure()) // others may do better
	_, err = ls.Lane(w)
	wantLimit(t, err, way.Link)
	if got := l.seen(t, mark, "192.0.2.2"); got != "" {
		t.Errorf("traffic of a lane that is down went on: seen as %q", got)
	}
	l.ip(t, "link set eth1 up")
	if again, err := ls.Lane(w); err != nil || again != mark {
		t.Errorf("the lane came back as %#x (%v), want %#x", again, err, mark)
	}
	l.ip(t, fmt.Sprintf("route add 203.0.113.0/24 via 192.0.2.1 table %d", mark))
	must(t, ls.Ensure())
	_, err = ls.Lane(w)
	wantLimit(t, err, way.Route)
	l.ip(t, fmt.Sprintf("route del 203.0.113.0/24 via 192.0.2.1 table %d", mark))
}
