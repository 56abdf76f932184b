package nettwin

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// met lists the kinds of limit that a twin met since it was made.
func (l *testLab) met(t *testing.T) []way.Kind {
	t.Helper()
	var kinds []way.Kind
	limits, _, err := l.twin.Limits(0)
	must(t, err)
	for _, m := range limits {
		if !slices.Contains(kinds, m.Kind) {
			kinds = append(kinds, m.Kind)
		}
	}
	return kinds
}

// seesBy asks the server for the path from inside, "fail" when there is none.
func (l *testLab) seesBy(t *testing.T, addr string) string {
	t.Helper()
	got, err := path(t, l.inside, "tcp", addr)
	if err != nil {
		return "fail"
	}
	return got
}

// TestHostChangesUnderTheTwin takes away from the host what the twin was made
// after. What the twin then cannot do, it says; it is never the candidate's fault.
func TestHostChangesUnderTheTwin(t *testing.T) {
	const server, server6 = "203.0.113.80:80", "[2001:db8:80::80]:80"
	for _, c := range []struct {
		name string
		host string    // changes on the host
		want [2]string // v4, v6
		met  []way.Kind
		back string // changes that undo it; then all is as before
	}{
		{
			name: "the link is set down and up again", host: "ip link set eth0 down", want: [2]string{"fail", "fail"}, met: []way.Kind{way.Link, way.Source},
			back: "ip link set eth0 up\nip -6 addr add 2001:db8:1::2/64 dev eth0 nodad\nip route add default via 192.0.2.1\nip -6 route add default via 2001:db8:1::1",
		},
		{
			name: "the default routes are elsewhere now", host: "ip route replace default via 198.51.100.1\nip -6 route replace default via 2001:db8:2::1",
			want: [2]string{"one 192.0.2.2", "one 2001:db8:1::2"}, // by lanes
			back: "ip route replace default via 192.0.2.1\nip -6 route replace default via 2001:db8:1::1",
		},
		{
			name: "the default routes are gone", host: "ip route del default\nip -6 route del default",
			want: [2]string{"one 192.0.2.2", "one 2001:db8:1::2"}, // by lanes
			back: "ip route add default via 192.0.2.1\nip -6 route add default via 2001:db8:1::1",
		},
		{
			name: "the addresses are others", host: "ip addr del 192.0.2.2/24 dev eth0\nip addr add 192.0.2.3/24 dev eth0\nip -6 addr add 2001:db8:1::3/64 dev eth0 nodad\nip -6 addr del 2001:db8:1::2/64 dev eth0\nip route add default via 192.0.2.1",
			want: [2]string{"fail", "fail"}, met: []way.Kind{way.Source},
			back: "ip addr del 192.0.2.3/24 dev eth0\nip addr add 192.0.2.2/24 dev eth0\nip -6 addr add 2001:db8:1::2/64 dev eth0 nodad\nip -6 addr del 2001:db8:1::3/64 dev eth0\nip route replace default via 192.0.2.1",
		},
		{
			name: "the link has another name", host: "ip link set eth0 down\nip link set eth0 name wan0\nip link set wan0 up\nip -6 addr add 2001:db8:1::2/64 dev wan0 nodad\nip route add default via 192.0.2.1\nip -6 route add default via 2001:db8:1::1",
			want: [2]string{"one 192.0.2.2", "one 2001:db8:1::2"},
		},
		{
			name: "the link is gone", host: "ip link del eth0", want: [2]string{"fail", "fail"}, met: []way.Kind{way.Link, way.Source},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, nstest.Tool("ip"))
			l.paths(t, "80")
			l.mirror(t, Options{Ways: l.lanes(t)})
			before := [2]string{l.seesBy(t, server), l.seesBy(t, server6)}
			l.onHostAll(t, c.host)
			if got := [2]string{l.seesBy(t, server), l.seesBy(t, server6)}; got != c.want {
				t.Errorf("the twin gets %q, want %q", got, c.want)
			}
			met := l.met(t)
			for _, k := range met {
				if !slices.Contains(c.met, k) {
					t.Errorf("a limit of kind %s, want %v", k, c.met)
				}
			}
			if c.met != nil && len(met) == 0 {
				t.Errorf("no limit was met, want one of %v", c.met)
			}
			if got := l.lines(t); len(got) != 0 {
				t.Errorf("the inside changed nothing, but: %q", got)
			}
			if got, err := path(t, l.inside, "tcp", "198.51.100.1:80"); err == nil {
				t.Errorf("nobody listens on gw2, but %q", got)
			}
			if c.back == "" {
				return
			}
			l.onHostAll(t, c.back)
			if got := [2]string{l.seesBy(t, server), l.seesBy(t, server6)}; got != before {
				t.Errorf("afterwards the twin gets %q, before %q", got, before)
			}
		})
	}
}

// TestLinkIsChangedInside gives a link in use another MTU and MAC.
func TestLinkIsChangedInside(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	echo(t, l.server, "tcp", ":80")
	echoUDP(t, l.server, ":5353")
	l.mirror(t, Options{})
	old, err := l.inside.Dial(within(t, 5*time.Second), "tcp", "203.0.113.80:80")
	must(t, err)
	defer old.Close()
	talk := func(c net.Conn, size int) {
		t.Helper()
		must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
		sent := strings.Repeat("x", size)
		go io.WriteString(c, sent)
		got := make([]byte, size)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != sent {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	head := make([]byte, len("192.0.2.2\n"))
	_, err = io.ReadFull(old, head)
	must(t, err)
	for _, line := range []string{
		"ip link set eth0 mtu 1280", "ip link set eth0 mtu 1400", "ip link set eth0 address 02:00:00:00:00:42", "ip link set eth0 mtu 1500",
		"ip link set eth0 txqueuelen 10", "ip link set eth0 arp on", "ip link set eth0 allmulticast on",
	} {
		l.run(t, line)
		talk(old, 300<<10)
		for _, a := range []struct{ addr, seen string }{{"203.0.113.80", "192.0.2.2"}, {"[2001:db8:80::80]", "2001:db8:1::2"}} {
			if got := l.seenAs(t, "tcp", a.addr+":80"); got != a.seen {
				t.Errorf("after %s: %s is seen as %s", line, a.addr, got)
			}
			payload := strings.Repeat("u", 4000)
			if got, err := l.datagram(a.addr+":5353", payload); err != nil || got != a.seen+"\n"+payload {
				t.Errorf("after %s: a datagram to %s: %.40q, %v", line, a.addr, got, err)
			}
		}
	}
	if got := l.lines(t); len(got) != 1 || !strings.HasPrefix(got[0], "ip link set eth0 up type tun address 02:00:00:00:00:42 mtu 1500 txqueuelen 10 allmulticast on (was ") {
		t.Errorf("difference: %q", got)
	}
}

// TestLinkIsMadeAgainInside deletes a link and makes another of its name, which
// has no end outside: the twin says that it is another, and carries nothing by it.
func TestLinkIsMadeAgainInside(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	l.paths(t, "80")
	echo(t, l.gw2, "tcp", ":80")
	l.mirror(t, Options{Ways: l.lanes(t)})
	if got := l.seenAs(t, "tcp", "198.51.100.1:80"); got != "198.51.100.2" {
		t.Fatalf("gw2 sees %s", got)
	}
	for _, line := range []string{
		"ip link del eth1", "ip tuntap add eth1 mode tap", "ip link set eth1 up", "ip addr add 198.51.100.2/24 dev eth1",
	} {
		l.run(t, line)
	}
	if err := l.connect("tcp", "198.51.100.1:80", 500*time.Millisecond); err == nil {
		t.Error("something answered over a link that nobody holds")
	}
	if got := l.seesBy(t, "203.0.113.80:80"); got != "one 192.0.2.2" {
		t.Errorf("the other link: %s", got)
	}
	if got := strings.Join(l.lines(t), "\n"); !strings.Contains(got, "ip link set eth1 up type tun address ") {
		t.Errorf("the difference does not name the link:\n%s", got)
	}
	if l.twin.Status().Relay == 0 {
		t.Error("the relay went with the link")
	}
	must(t, l.twin.Reset(t.Context()))
	if got := l.seenAs(t, "tcp", "198.51.100.1:80"); got != "198.51.100.2" {
		t.Errorf("after a reset gw2 sees %s", got)
	}
}
