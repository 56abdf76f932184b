package nettwin

import "testing"

func TestTCPReachesTheOutside(t *testing.T) {
	l := newLab(t)
	echo(t, l.server, "tcp", ":80")
	echo(t, l.gw2, "tcp", ":80")
	l.mirror(t, Options{})
	for _, c := range []struct{ name, addr, seen string }{
		{"v4 by the default route", "203.0.113.80:80", "192.0.2.2"},
		{"v6 by the default route", "[2001:db8:80::80]:80", "2001:db8:1::2"},
		{"v4 on eth1's own subnet", "198.51.100.1:80", "198.51.100.2"},
		{"v6 on eth1's own subnet", "[2001:db8:2::1]:80", "2001:db8:2::2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := l.seenAs(t, "tcp", c.addr); got != c.seen {
				t.Errorf("server saw %s, want %s", got, c.seen)
			}
		})
	}
}
