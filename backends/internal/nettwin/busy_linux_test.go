package nettwin

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// unrest is what happens to a host that others configure, each with what makes it
// good again.
var unrest = []struct{ do, undo string }{
	{"ip rule flush; ip rule add pref 32766 lookup main; ip rule add pref 32767 lookup default", ""},
	{"ip -6 rule flush; ip -6 rule add pref 32766 lookup main", ""},
	{"ip rule add pref 100 lookup main suppress_prefixlength 1", "ip rule del pref 100"},
	{"ip rule add pref 1 fwmark 0/1 lookup main; ip rule add pref 2 lookup main", "ip rule del pref 1; ip rule del pref 2"},
	{"ip -6 rule add pref 7 lookup main", "ip -6 rule del pref 7"},
	{"ip route flush cache; ip route del default; ip route add default via 192.0.2.1 metric 7", "ip route del default; ip route add default via 192.0.2.1"},
	{"nft flush ruleset", "nft add table inet f"},
	{"nft add table ip n; nft add chain ip n o '{ type nat hook output priority -100; }'; nft add rule ip n o tcp dport 9999 redirect to :9", "nft delete table ip n"},
	{"sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0", "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1"},
	{"ip addr add 192.0.2.200/24 dev eth0", "ip addr del 192.0.2.200/24 dev eth0"},
	{"ip link set eth1 down", "ip link set eth1 up; ip -6 addr add 2001:db8:2::2/64 dev eth1 nodad"},
	{"ip link set eth1 down; ip link set eth1 name elsewhere; ip link set elsewhere up", "ip link set elsewhere down; ip link set elsewhere name eth1; ip link set eth1 up"},
	{"ip route show table all | sed -n 's/.* table \\([0-9]\\{9,\\}\\) .*/\\1/p' | sort -u | while read n; do ip route flush table $n; ip -6 route flush table $n; done", ""},
	{"sysctl -qw net.ipv6.conf.eth1.disable_ipv6=1", "sysctl -qw net.ipv6.conf.eth1.disable_ipv6=0; ip -6 addr add 2001:db8:2::2/64 dev eth1 nodad"},
}

// TestNoSuccessOnABusyHost tries a candidate whose gateway swallows everything, again
// and again, while everything that lanes are made of is changed and removed under
// them. The host's own way works all the time: none of the tries may get through, and
// lanes remove what is left of them in the end.
func TestNoSuccessOnABusyHost(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	for family, dst := range map[string]string{"-4": "203.0.113.0/24", "-6": "2001:db8:80::/64"} {
		_, err := l.gw3.Run(t.Context(), "ip", family, "route", "replace", "blackhole", dst)
		must(t, err)
	}
	l.mirror(t, Options{Ways: l.keeper})
	l.run(t, "ip route replace default via 192.0.2.254")
	l.run(t, "ip -6 route replace default via 2001:db8:1::fe metric 1024")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	end := time.Now().Add(busyTime)
	var tries sync.WaitGroup
	for _, server := range servers {
		for _, network := range []string{"tcp", "udp"} {
			tries.Go(func() {
				for time.Now().Before(end) {
					try := func() (string, error) { return pathWithin(t, l.inside, network, server+":80", 1500*time.Millisecond) }
					if network == "udp" {
						try = func() (string, error) { return l.insist(server + ":80") }
					}
					if got, err := try(); err == nil {
						t.Errorf("%s to %s got through, seen as %q", network, server, got)
					}
				}
			})
		}
	}
	var done []string
	for time.Now().Before(end) {
		u := unrest[r.IntN(len(unrest))]
		done = append(done, u.do)
		for _, line := range []string{u.do, u.undo} {
			if _, err := l.host.Run(t.Context(), "sh", "-c", line); err != nil && !strings.Contains(line, "flush") {
				t.Errorf("%s: %v", line, err)
			}
			_ = l.keeper.Keeper.(interface{ Ensure() error }).Ensure() // as before each probe
		}
	}
	tries.Wait()
	if t.Failed() {
		t.Logf("%d changes:\n%s", len(done), strings.Join(done, "\n"))
	}
	must(t, l.keeper.close())
	for _, family := range []string{"-4", "-6"} {
		for _, what := range []string{"rule", "route show table all"} {
			if out := l.onHost(t, fmt.Sprintf("ip -details %s %s", family, what)); strings.Contains(out, "proto 91") {
				t.Errorf("left on the host:\n%s", out)
			}
		}
	}
}

// busyTime is how long.
const busyTime = 5 * time.Second
