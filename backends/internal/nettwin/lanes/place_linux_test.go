package lanes

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// ruleOf is the rule of a lane as the host has it, the only one.
func ruleOf(t *testing.T, ls *Lanes, mark uint32, six bool) rule {
	t.Helper()
	rules, err := ls.kernel.rules(six)
	must(t, err)
	var found []rule
	for _, r := range rules {
		if _, ok := r.ours(); ok && r.table == mark && r.mark.Mask != 0 {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d rules for mark %#x, want 1: %v", len(found), mark, found)
	}
	return found[0]
}

// TestNumbersAndPlaceEvadeTheHost has hosts that use what lanes would have first.
// A rule of theirs that came before ours would lead to gw1, by table 77.
func TestNumbersAndPlaceEvadeTheHost(t *testing.T) {
	const first = 0x5b000000
	for _, c := range []struct {
		name  string
		host  []string
		marks []Mark
		pref  uint32
		mark  uint32
	}{
		{name: "nothing in the way", pref: 5100, mark: first},
		{name: "a rule for everything at 1", host: []string{"-6 rule add pref 1 lookup 77"}, pref: 0, mark: first},
		{name: "a rule for everything at our place", host: []string{"-6 rule add pref 5100 lookup 77"}, pref: 5099, mark: first},
		{name: "two rules", host: []string{"-6 rule add pref 3000 lookup 77", "-6 rule add pref 200 to 2001:db8:80::/64 lookup 77"}, pref: 199, mark: first},
		{name: "packets without a mark of theirs", host: []string{"-6 rule add pref 4000 fwmark 0/0xff0000 lookup 77"}, pref: 3999, mark: first},
		{name: "wg-quick", host: []string{"-6 rule add pref 4000 not fwmark 0xca6c lookup 77"}, pref: 3999, mark: first},
		{name: "Tailscale", host: []string{"-6 rule add pref 4000 fwmark 0x80000/0xff0000 lookup 77"}, pref: 5100, mark: first},
		{name: "what arrives on an interface", host: []string{"-6 rule add pref 4000 iif eth0 lookup 77"}, pref: 5100, mark: first},
		{name: "a rule of the other family at 1", host: []string{"-4 rule add pref 1 lookup 77"}, pref: 5100, mark: first},
		{name: "our tag", host: []string{"-6 rule add pref 6000 fwmark 0x5b000000/0xff000000 lookup 77"}, pref: 5100, mark: 0x5c000000},
		{name: "our tag, before our place", host: []string{"-6 rule add pref 4 fwmark 0x5b000000/0xff000000 lookup 77"}, pref: 5100, mark: 0x5c000000},
		{name: "our tag in the other family", host: []string{"-4 rule add pref 6000 fwmark 0x5b000000/0xff000000 lookup 77"}, pref: 5100, mark: 0x5c000000},
		{name: "bits of our tag", host: []string{"-6 rule add pref 4 fwmark 0x3000000/0x7000000 lookup 77"}, pref: 5100, mark: 0x5c000000},
		{name: "bits of our block", host: []string{"-6 rule add pref 4 fwmark 0x100/0x100 lookup 77"}, pref: 5100, mark: first},
		{name: "every bit of our hops", host: []string{"-6 rule add pref 4 fwmark 0x1/0x1 lookup 77", "-6 rule add pref 4 fwmark 0x2/0x3 lookup 77"}, pref: 5100, mark: first},
		{name: "our very mark", host: []string{"-6 rule add pref 4 fwmark 0x5b000000 lookup 77"}, pref: 5100, mark: 0x5b000100},
		{name: "a table that a rule leads to", host: []string{fmt.Sprintf("-6 rule add pref 6000 lookup %d", first)}, pref: 5100, mark: 0x5b000100},
		{name: "a table with a route", host: []string{fmt.Sprintf("-6 route add 2001:db8:99::/64 via 2001:db8:1::1 table %d", first)}, pref: 5100, mark: first + 1},
		{name: "a mark of the packet filter", marks: []Mark{{0x5b000000, 0xff000000}}, pref: 5100, mark: 0x5c000000},
		{name: "the local table behind us", host: []string{"-6 rule add pref 32000 lookup local", "-6 rule del pref 0"}, pref: 5100, mark: first},
		{name: "the local table moved, and a rule before it", host: []string{"-6 rule add pref 100 lookup local", "-6 rule del pref 0", "-6 rule add pref 9 fwmark 0x200/0xf00 lookup 77"}, pref: 5100, mark: first},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.ip(t, "-6 route add default via 2001:db8:1::1 table 77")
			for _, line := range c.host {
				l.ip(t, line)
			}
			before := l.dump(t)
			ls := l.lanes(t, Options{Marks: func() ([]Mark, error) { return c.marks, nil }})
			mark, err := ls.Lane(l.via("2001:db8:2::1", l.eth1))
			must(t, err)
			if r := ruleOf(t, ls, mark, true); r.pref != c.pref || mark != c.mark {
				t.Errorf("mark %#x at %d, want %#x at %d", mark, r.pref, c.mark, c.pref)
			}
			if got := l.seen(t, mark, "2001:db8:2::2"); got != gw2at6 {
				t.Errorf("the server saw %q, want %s", got, gw2at6)
			}
			must(t, ls.Close())
			l.same(t, before)
		})
	}
}

// TestNoPlaceIsALimit has a rule that nothing can come before.
func TestNoPlaceIsALimit(t *testing.T) {
	l := newLab(t)
	l.ip(t, "-6 rule add pref 0 lookup 77")
	before := l.dump(t)
	ls := l.lanes(t, Options{})
	_, err := ls.Lane(l.via("2001:db8:2::1", l.eth1))
	wantLimit(t, err, way.Route)
	l.same(t, before)
	_, err = ls.Lane(l.via("198.51.100.1", l.eth1)) // IPv4 is another matter
	must(t, err)
}

// TestNoNumberIsALimit takes every block there is.
func TestNoNumberIsALimit(t *testing.T) {
	l := newLab(t)
	for b := range block(blocks) {
		c, err := take(int(l.host.NS().Fd()), b)
		must(t, err)
		defer func() { must(t, c.release()) }()
	}
	before := l.dump(t)
	ls := l.lanes(t, Options{})
	_, err := ls.Lane(l.via("2001:db8:2::1", l.eth1))
	wantLimit(t, err, way.Load)
	l.same(t, before)
	errs := errors.New("no ruleset")
	ls = l.lanes(t, Options{Marks: func() ([]Mark, error) { return nil, errs }})
	if _, err := ls.Lane(l.via("2001:db8:2::1", l.eth1)); !errors.Is(err, errs) {
		t.Errorf("marks that cannot be read give %v, want %v", err, errs)
	}
}

// TestManyOwnersShareNoNumber opens ten sets of lanes in one namespace at once,
// each with ways of its own. Each has the traffic of its marks, and what closes
// first takes nothing of the others along.
func TestManyOwnersShareNoNumber(t *testing.T) {
	l := newLab(t)
	before := l.dump(t)
	const owners = 10
	var all [owners]*Lanes
	var marks [owners][]uint32
	var wg sync.WaitGroup
	for i := range owners {
		all[i] = l.lanes(t, Options{Owner: fmt.Sprint(i)})
		wg.Go(func() {
			for j := range 4 {
				w := way.Lane{Index: l.eth1, NextHop: netip.MustParseAddr(fmt.Sprintf("2001:db8:2::%x", 16*j+1)), Six: true}
				if (i+j)%2 == 1 {
					w = way.Lane{Index: l.eth0, NextHop: netip.MustParseAddr("2001:db8:1::1"), Six: true}
				}
				m, err := all[i].Lane(w)
				if err != nil {
					t.Error(err)
				}
				marks[i] = append(marks[i], m)
			}
		})
	}
	wg.Wait()
	whose := map[uint32]int{}
	for i, ms := range marks {
		for _, m := range ms {
			if other, taken := whose[m]; taken && other != i {
				t.Errorf("owners %d and %d share %#x", other, i, m)
			}
			whose[m] = i
		}
	}
	for i := range owners {
		want := map[bool]string{true: gw2at6, false: gw1at6}[i%2 == 0]
		if got := l.seen(t, marks[i][0], "2001:db8:2::2"); got != want {
			t.Errorf("owner %d's traffic is seen as %q, want %s", i, got, want)
		}
		must(t, all[i].Close())
	}
	l.same(t, before)
}
