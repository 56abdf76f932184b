package nettwin

import (
	"bufio"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWays changes the twin's routes and rules, one row of what agents do at a
// time, and looks which path its traffic takes, and that the host's own traffic
// takes the host's at the same moment.
func TestWays(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	l.paths(t, "81")
	host := dump(t, int(l.host.NS().Fd()))
	for _, c := range []struct {
		name   string
		change []string
		seen   [2]string
		err    [2]error // instead
		silent bool     // instead
	}{
		{name: "as the host", seen: byGW1},
		{
			name:   "another gateway",
			change: []string{"ip route replace default via 192.0.2.254", "ip -6 route replace default via 2001:db8:1::fe"},
			seen:   byGW3,
		},
		{
			name:   "a dead gateway",
			change: []string{"ip route replace default via 192.0.2.77", "ip -6 route replace default via 2001:db8:1::77"},
			silent: true,
		},
		{
			name:   "another interface",
			change: []string{"ip route replace default via 198.51.100.1", "ip -6 route replace default via 2001:db8:2::1"},
			seen:   byGW2,
		},
		{
			name: "a table of the twin's own",
			change: []string{
				"ip rule add to 203.0.113.80 lookup 77", "ip route add default via 192.0.2.254 table 77",
				"ip -6 rule add to 2001:db8:80::80 lookup 77", "ip -6 route add default via 2001:db8:1::fe table 77",
			},
			seen: byGW3,
		},
		{
			name:   "a rule that is a black hole",
			change: []string{"ip rule add pref 9 blackhole", "ip -6 rule add pref 9 blackhole"},
			err:    [2]error{unix.EINVAL, unix.EINVAL},
		},
		{
			name:   "a default route that is none",
			change: []string{"ip route replace blackhole default", "ip -6 route replace unreachable default"},
			err:    [2]error{unix.EINVAL, unix.EHOSTUNREACH},
		},
		{
			name:   "IPv4 by an IPv6 gateway",
			change: []string{"ip -4 route replace default via inet6 2001:db8:1::fe dev eth0"},
			seen:   [2]string{byGW3[0], byGW1[1]},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.mirror(t, Options{Ways: l.keeper})
			for _, line := range c.change {
				l.run(t, line)
			}
			var all sync.WaitGroup
			for six, server := range servers {
				for network, port := range map[string]string{"tcp": ":80", "udp": ":81"} {
					all.Go(func() {
						if got, err := path(t, l.host, network, server+port); got != byGW1[six] {
							t.Errorf("%s of the host to %s: seen as %q, %v; want %q", network, server, got, err, byGW1[six])
						}
						if c.silent {
							l.wantSilence(t, network, server+port)
							return
						}
						got, err := path(t, l.inside, network, server+port)
						if !errors.Is(err, c.err[six]) || got != c.seen[six] {
							t.Errorf("%s to %s: seen as %q, %v; want %q, %v", network, server, got, err, c.seen[six], c.err[six])
						}
					})
				}
			}
			all.Wait()
			if got := l.limits(t); len(got) != 0 {
				t.Errorf("limits: %v", got)
			}
			must(t, l.twin.Close())
			if n := l.keeper.open(); n != 0 {
				t.Errorf("%d flows are still let in", n)
			}
		})
	}
	must(t, l.keeper.close())
	if got := dump(t, int(l.host.NS().Fd())); got != host {
		t.Errorf("the host is\n%s\nbefore it was\n%s", got, host)
	}
}

// wantSilence expects that nobody answers, not even with a refusal, as long as a
// client usually waits. (Three seconds later the kernel knows that nobody has the
// gateway's address, and says "no route to host", inside as on the host.)
func (l *testLab) wantSilence(t *testing.T, network, addr string) {
	t.Helper()
	const patience = 1500 * time.Millisecond
	var err error
	if network == "udp" {
		_, err = l.datagramWithin(addr, "x", patience)
	} else {
		err = l.connect(network, addr, patience)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s to %s: got %v, want silence", network, addr, err)
	}
}

// TestReversePath goes by another interface of a host that filters by reverse
// path in each way that there is. It holds a rule for a flow only where the filter
// would drop the answers.
func TestReversePath(t *testing.T) {
	l := newWaysLab(t)
	echo(t, l.server, "tcp", ":82")
	for filter, want := range map[string]int{"0": 0, "1": 1, "2": 0} {
		t.Run("rp_filter "+filter, func(t *testing.T) {
			for _, s := range []string{"all", "default", "eth0", "eth1"} {
				must(t, l.host.Sysctl("ipv4/conf/"+s+"/rp_filter", filter))
			}
			l.mirror(t, Options{Ways: l.keeper})
			l.run(t, "ip route replace default via 198.51.100.1")
			c, err := l.inside.Dial(within(t, 5*time.Second), "tcp", servers[0]+":82")
			must(t, err)
			defer c.Close()
			r := bufio.NewReader(c)
			if seen, err := r.ReadString('\n'); seen != "198.51.100.2\n" || err != nil {
				t.Errorf("seen as %q, %v", seen, err)
			}
			rules, err := l.host.Run(t.Context(), "ip", "rule")
			must(t, err)
			if got := strings.Count(rules, "sport"); got != want {
				t.Errorf("%d rules for one flow, want %d:\n%s", got, want, rules)
			}
			must(t, c.Close())
			eventually(t, "the flow's rule is gone", func() bool {
				rules, err := l.host.Run(t.Context(), "ip", "rule")
				must(t, err)
				return !strings.Contains(rules, "sport")
			})
			if ls := l.limits(t); len(ls) != 0 {
				t.Errorf("limits: %v", ls)
			}
		})
	}
}

// TestHostHasNoWay repairs, inside, what is broken on the host.
func TestHostHasNoWay(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	l.paths(t, "81")
	for _, c := range []struct {
		name string
		host []string
	}{
		{"no default route", []string{"ip route del default", "ip -6 route del default"}},
		{"black holes", []string{"ip route add blackhole default", "ip -6 route add blackhole default metric 512"}},
		{"a rule that is a black hole", []string{"ip rule add pref 9 to 203.0.113.0/24 blackhole", "ip -6 rule add pref 9 to 2001:db8:80::/64 blackhole"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, line := range c.host {
				_, err := l.host.Run(t.Context(), strings.Fields(line)...)
				must(t, err)
			}
			must(t, l.keeper.ensure())
			l.mirror(t, Options{Ways: l.keeper})
			for _, line := range []string{
				"ip route replace default via 192.0.2.254", "ip -6 route replace default via 2001:db8:1::fe metric 16",
				"ip rule add pref 8 lookup main", "ip -6 rule add pref 8 lookup main",
			} {
				l.run(t, line)
			}
			for six, server := range servers {
				if got, err := path(t, l.host, "tcp", server+":80"); err == nil {
					t.Fatalf("the host reached %s: %q", server, got)
				}
				l.wantPath(t, server, byGW3[six])
			}
			if ls := l.limits(t); len(ls) != 0 {
				t.Errorf("limits: %v", ls)
			}
		})
	}
}
