package nettwin

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// TestStreamStandsStill on a way beyond which long packets are lost without a word
// that could be heard. Where a host that went this way by itself would have heard
// it, that is a limit; where a word would be let in, the way is to blame.
func TestStreamStandsStill(t *testing.T) {
	l := newWaysLab(t)
	echo(t, l.server, "tcp", ":82")
	l.ruleset(t, l.gw2, "table ip far { chain through { type filter hook forward priority 0; ip length > 1000 drop; }; }")
	isLimit := func(lim way.Limit) bool { return lim.Kind == way.ReversePath && lim.Subject == "eth1 via 198.51.100.1" }
	for _, row := range []struct {
		name, filter string
		size         int
		still, limit bool
	}{
		{"a strict filter", "1", 64 << 10, true, true},
		{"a strict filter, and short packets", "1", 100, false, false},
		{"no filter", "0", 64 << 10, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, s := range []string{"all", "default", "eth0", "eth1"} {
				must(t, l.host.Sysctl("ipv4/conf/"+s+"/rp_filter", row.filter))
			}
			l.mirror(t, Options{Ways: l.keeper})
			l.run(t, "ip route replace default via 198.51.100.1")
			c, err := l.inside.Dial(within(t, 5*time.Second), "tcp", servers[0]+":82")
			must(t, err)
			defer c.Close()
			must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
			_, err = c.Write(make([]byte, row.size))
			must(t, err)
			if row.still {
				// By the kernel's own count on the host, whatever the relay thinks of it.
				eventually(t, "the host sends the same again and again", func() bool { return l.backedOff(t) })
			} else if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Errorf("no answer: %v", err)
			}
			if ls := l.limits(t); slices.ContainsFunc(ls, isLimit) != row.limit {
				t.Errorf("limits while it is open: %v", ls)
			}
			// Whoever waited for it in vain is gone before anybody asks.
			_, before, err := l.twin.Limits(0)
			must(t, err)
			must(t, c.Close())
			if row.limit {
				eventually(t, "its end says so too", func() bool {
					ls, _, err := l.twin.Limits(before)
					must(t, err)
					return slices.ContainsFunc(ls, isLimit)
				})
			}
		})
	}
}

// backedOff reports whether the host has sent something to port 82 three times and
// more, as /proc/net/tcp counts: the field after the timer's.
func (l *testLab) backedOff(t *testing.T) (again bool) {
	t.Helper()
	must(t, l.host.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/net/tcp")
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 6 && strings.HasSuffix(f[2], ":0052") {
				n, err := strconv.ParseUint(f[6], 16, 32)
				again = again || err == nil && n >= 3
			}
		}
		return err
	}))
	return again
}
