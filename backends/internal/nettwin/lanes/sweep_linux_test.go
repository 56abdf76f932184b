package lanes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSweepLeavesTheLivingAlone sweeps beside a living owner and a dead one.
func TestSweepLeavesTheLivingAlone(t *testing.T) {
	l := newLab(t)
	host := int(l.host.NS().Fd())
	ls := l.lanes(t, Options{Owner: "edge-proxy"})
	w := l.via("198.51.100.1", l.eth1)
	mark, err := ls.Lane(w)
	must(t, err)
	fd, at := l.bound(t, mark, "198.51.100.2")
	defer unix.Close(fd)
	must(t, ls.Admit(flow(w, at)))
	alive := l.dump(t)

	found := must2(Find(host))(t)
	if len(found) != 4 {
		t.Errorf("found %d objects, want two rules and two routes: %+v", len(found), found)
	}
	for _, o := range found {
		if !o.Alive || o.Owner != "edge-proxy" || o.PID != os.Getpid() {
			t.Errorf("found %+v, want it alive and edge-proxy's, process %d", o, os.Getpid())
		}
	}
	var texts []string
	for _, o := range found {
		texts = append(texts, o.Text)
	}
	for _, want := range []string{
		fmt.Sprintf("rule pref 5100 fwmark %#x/%#x lookup %d proto 91", mark, mask, mark),
		fmt.Sprintf("rule pref 5100 from 198.51.100.2 to 203.0.113.80 ipproto 6 sport %d dport 80 lookup %d proto 91", at.Port(), mark),
		fmt.Sprintf("route default via 198.51.100.1 dev eth1 table %d proto 91", mark),
		fmt.Sprintf("route unreachable default table %d metric 4294967295 proto 91", mark),
	} {
		if !slices.Contains(texts, want) {
			t.Errorf("not found: %s\nbut: %s", want, strings.Join(texts, "\n     "))
		}
	}
	if gone := must2(Sweep(host))(t); len(gone) != 0 {
		t.Errorf("the sweep removed %+v", gone)
	}
	l.same(t, alive)

	// Once by a socket of its own, and twice by one that is kept.
	s, err := NewSweeper(l.host.NS())
	must(t, err)
	defer s.Close()
	for _, sweep := range []func() ([]Object, error){func() ([]Object, error) { return Sweep(host) }, s.Sweep, s.Sweep} {
		if err := l.child(t, 20, "").Wait(); err == nil {
			t.Fatal("the child was not killed")
		}
		_ = l.removeEarly()
		if gone := must2(sweep())(t); len(gone) == 0 {
			t.Error("the dead owner's are still there")
		}
		l.same(t, alive)
		if gone := must2(sweep())(t); len(gone) != 0 {
			t.Errorf("another sweep removed %+v", gone)
		}
	}
	if got := greeting(t, fd, silence*10); got != gw2at4 {
		t.Errorf("seen as %q after the sweep, want %s", got, gw2at4)
	}
}

// TestSweepKeepsWhatIsNotOurs has objects that look like ours in part.
func TestSweepKeepsWhatIsNotOurs(t *testing.T) {
	l := newLab(t)
	const n = 0x5b000000
	lane := fmt.Sprintf("fwmark %#x/%#x lookup %d", n, mask, n)
	for _, line := range []string{
		"rule add pref 5000 fwmark 0x91 lookup 77 protocol 91",
		fmt.Sprintf("rule add pref 5100 fwmark %#x lookup %d protocol 91", n, n),
		fmt.Sprintf("rule add pref 5100 fwmark %#x/%#x lookup %d protocol 91", n+1, mask, n),
		"rule add pref 5100 iif eth0 " + lane + " protocol 91",
		"rule add pref 5100 to 203.0.113.0/24 " + lane + " protocol 91",
		"rule add pref 5101 " + lane + " protocol 91",
		"rule add pref 5099 " + lane + " protocol static",
		"rule add pref 5098 not " + lane + " protocol 91",
		fmt.Sprintf("rule add pref 5100 from 198.51.100.2 to 203.0.113.80 lookup %d protocol 91", n),
		fmt.Sprintf("rule add pref 5100 from 198.51.100.2 to 203.0.113.80 ipproto tcp sport 5 dport 6-7 lookup %d protocol 91", n),
		"-6 rule add pref 5000 lookup 77 protocol 91",
		"route add 203.0.113.0/24 via 192.0.2.1 proto 91",
		"route add default via 192.0.2.1 table 77 proto 91",
		fmt.Sprintf("route add 203.0.113.0/24 via 192.0.2.1 table %d proto 91", n),
		fmt.Sprintf("route add default via 192.0.2.1 dev eth0 table %d metric 7 proto 91", n),
		fmt.Sprintf("route add default via 192.0.2.1 dev eth0 onlink table %d proto static", n+1),
		fmt.Sprintf("route add default via 192.0.2.1 dev eth0 onlink mtu 1400 table %d proto 91", n+2),
		fmt.Sprintf("route add default table %d proto 91 nexthop via 192.0.2.1 nexthop via 198.51.100.1", n+3),
		fmt.Sprintf("route add unreachable default table %d metric 5 proto 91", n+4),
		fmt.Sprintf("route add blackhole default table %d metric 4294967295 proto 91", n+4),
		fmt.Sprintf("-6 route add default via 2001:db8:1::1 dev eth0 table %d proto 91", n+1),
		fmt.Sprintf("-6 route add 2001:db8:80::/64 via 2001:db8:1::1 proto 91 table %d", n),
	} {
		l.ip(t, line)
	}
	before := l.dump(t)
	host := int(l.host.NS().Fd())
	if gone := must2(Sweep(host))(t); len(gone) != 0 {
		t.Errorf("the sweep removed %+v", gone)
	}
	l.same(t, before)
	ls := l.lanes(t, Options{})
	_, err := ls.Lane(l.via("2001:db8:2::1", l.eth1))
	must(t, err)
	must(t, ls.Close())
	l.same(t, before)
}

// TestNamesExclude has a sweeper hold the name of a block: a new owner takes
// another, and an owner's name is no sweeper's.
func TestNamesExclude(t *testing.T) {
	l := newLab(t)
	host := int(l.host.NS().Fd())
	sweeper, err := take(host, 0)
	must(t, err)
	ls := l.lanes(t, Options{})
	mark, err := ls.Lane(l.via("2001:db8:2::1", l.eth1))
	must(t, err)
	if mark != 0x5b000100 {
		t.Errorf("the mark is %#x, want the first of the second block", mark)
	}
	if _, err := take(host, 1); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("an owner's name could be taken: %v", err)
	}
	must(t, sweeper.release())
	must(t, ls.Close())
	free, err := take(host, 1)
	must(t, err)
	must(t, free.release())
}

// TestIntentComesFirst cannot write down what it is about to do, and so does not
// do it.
func TestIntentComesFirst(t *testing.T) {
	l := newLab(t)
	before := l.dump(t)
	dir := t.TempDir()
	ls := l.lanes(t, Options{Record: filepath.Join(dir, "missing", "lanes")})
	if _, err := ls.Lane(l.via("2001:db8:2::1", l.eth1)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
	l.same(t, before)
	must(t, os.Mkdir(filepath.Join(dir, "missing"), 0o700))
	if _, err := ls.Lane(l.via("2001:db8:2::1", l.eth1)); err != nil {
		t.Errorf("the second attempt: %v", err)
	}
	must(t, ls.Close())
	l.same(t, before)
	if entries, err := os.ReadDir(filepath.Join(dir, "missing")); err != nil || len(entries) != 0 {
		t.Errorf("left in the directory: %v (%v)", entries, err)
	}
}

// TestConflicts says of a host what lanes evade on it.
func TestConflicts(t *testing.T) {
	l := newLab(t)
	must(t, l.host.Sysctl("ipv4/conf/all/rp_filter", "0"))
	must(t, l.host.Sysctl("ipv4/conf/eth1/src_valid_mark", "1"))
	ls := l.lanes(t, Options{})
	_, err := ls.Lane(l.via("198.51.100.1", l.eth1)) // our own are none
	must(t, err)
	for _, line := range []string{
		"-6 rule add pref 1 to 2001:db8::/32 lookup 77",
		"rule add pref 6000 fwmark 0x5b000000/0xff000000 lookup 78",
		fmt.Sprintf("rule add pref 6001 iif eth0 lookup %d", 0x5c000001),
		"rule add pref 6002 fwmark 0x80000/0xff0000 lookup 79 protocol 91",
		"route add 203.0.113.0/24 via 192.0.2.1 proto 91",
	} {
		l.ip(t, line)
	}
	got := map[string]string{}
	for _, c := range must2(Conflicts(int(l.host.NS().Fd())))(t) {
		got[c.Kind+": "+c.Subject] = c.Reason
		if c.Bars {
			t.Errorf("no way round %s: %s", c.Subject, c.Reason)
		}
	}
	for _, want := range []struct{ subject, reason string }{
		{"pref: rule inet6 pref 1 from all to 2001:db8::/32 lookup 77", "before 5100"},
		{"mark: rule pref 6000 from all fwmark 0x5b000000 mask 0xff000000 lookup 78", "0x5b000000"},
		{"table: rule pref 6001 from all iif eth0 lookup 1543503873", "range"},
		{"protocol: rule pref 6002 from all protocol 91 fwmark 0x80000 mask 0xff0000 lookup 79", "left alone"},
		{"protocol: route 203.0.113.0/24 table main via 192.0.2.1 dev eth0 proto 91", "left alone"},
		{"rp_filter: eth0", "all 0, eth0 1"},
		{"rp_filter: eth1", "src_valid_mark"},
	} {
		if reason, ok := got[want.subject]; !ok || !strings.Contains(reason, want.reason) {
			t.Errorf("%s: %q, want it to say %q", want.subject, reason, want.reason)
		}
		delete(got, want.subject)
	}
	for subject, reason := range got {
		t.Errorf("said besides: %s: %s", subject, reason)
	}

	l.ip(t, "rule add pref 0 to 203.0.113.9 lookup 77")
	var bars []string
	for _, c := range must2(Conflicts(int(l.host.NS().Fd())))(t) {
		if c.Bars {
			bars = append(bars, c.Kind+": "+c.Subject)
		}
	}
	if want := []string{"pref: rule pref 0 from all to 203.0.113.9 lookup 77"}; !slices.Equal(bars, want) {
		t.Errorf("what bars lanes is %q, want %q", bars, want)
	}
}
