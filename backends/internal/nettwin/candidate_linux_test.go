package nettwin

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// TestNoSuccessOfItsOwn changes inside what would cut the host off if it were
// changed there, and does so by means that are not a route: the probe must not get
// through on the strength of what the host is today.
func TestNoSuccessOfItsOwn(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	for _, c := range []struct {
		name   string
		change []string
	}{
		{"a link that no longer asks for its neighbours", []string{"ip link set eth0 arp off"}},
		{"a next hop that nobody has, and does not ask for", []string{"ip route replace default via 192.0.2.77", "ip -6 route replace default via 2001:db8:1::77 metric 1024", "ip link set eth0 arp off"}},
		{"packets that die at the first router", []string{"sysctl -qw net.ipv4.ip_default_ttl=1 net.ipv6.conf.eth0.hop_limit=1"}},
		{"a route whose packets die at the first router", []string{"ip route replace default via 192.0.2.1 hoplimit 1", "ip -6 route replace default via 2001:db8:1::1 metric 1024 hoplimit 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.mirror(t, Options{Ways: l.keeper})
			for _, line := range c.change {
				l.run(t, line)
			}
			var all sync.WaitGroup
			for _, server := range servers {
				for _, network := range []string{"tcp", "udp"} {
					all.Go(func() {
						if got, err := pathWithin(t, l.inside, network, server+":80", time.Second); err == nil {
							t.Errorf("%s to %s: got through, seen as %q", network, server, got)
						}
					})
				}
			}
			all.Wait()
		})
	}
}

// TestSourceTranslationOfTheHostAlone has the host give packets a source that can
// be answered. A candidate without that rule must not live by the host's.
func TestSourceTranslationOfTheHostAlone(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	must(t, l.host.Address("lo", "10.8.0.2/32"))
	l.ruleset(t, l.host, "table ip n { chain out { type nat hook postrouting priority srcnat; ip saddr 10.8.0.0/24 masquerade; }; }")
	l.mirror(t, Options{Ways: l.keeper})
	for _, network := range []string{"tcp", "udp"} {
		if got, err := l.pathFrom(t, network, "10.8.0.2", servers[0]+":80"); got != byGW1[0] {
			t.Errorf("%s with the rule: seen as %q, %v; want %q", network, got, err, byGW1[0])
		}
	}
	if ls := l.limits(t); len(ls) != 0 {
		t.Errorf("limits: %v", ls)
	}
	l.run(t, "nft flush ruleset")
	for _, network := range []string{"tcp", "udp"} {
		if got, err := l.pathFrom(t, network, "10.8.0.2", servers[0]+":80"); err == nil {
			t.Errorf("%s without the rule: got through, seen as %q", network, got)
		}
	}
	for _, lim := range l.limits(t) {
		if lim.Kind != way.Translation {
			t.Errorf("limits: %v, want only %s", lim, way.Translation)
		}
	}
	if len(l.limits(t)) == 0 {
		t.Error("no limit was met")
	}
}

// TestEchoTranslatedByTheHostAlone is the same of echo requests.
func TestEchoTranslatedByTheHostAlone(t *testing.T) {
	l := newWaysLab(t)
	must(t, l.host.Address("lo", "10.8.0.2/32", "2001:db8:a::2/128"))
	l.ruleset(t, l.host, "table inet n { chain out { type nat hook postrouting priority srcnat; ip saddr 10.8.0.0/24 masquerade; ip6 saddr 2001:db8:a::/64 masquerade; }; }")
	l.mirror(t, Options{Ways: l.keeper})
	l.run(t, "ip route replace default via 192.0.2.1 src 10.8.0.2")
	l.run(t, "ip -6 route replace default via 2001:db8:1::1 metric 1024 src 2001:db8:a::2")
	ask := func(six int) error {
		p := ping(t, l.inside, [2]string{"203.0.113.80", "2001:db8:80::80"}[six])
		_, err := p.Write(p.request(uint16(7+six), 1, []byte("x")))
		must(t, err)
		_, _, err = p.reply(time.Second)
		return err
	}
	for six := range servers {
		if err := ask(six); err != nil {
			t.Errorf("to %s with the rule: %v", servers[six], err)
		}
	}
	if ls := l.limits(t); len(ls) != 0 {
		t.Errorf("limits: %v", ls)
	}
	l.run(t, "nft flush ruleset")
	for six := range servers {
		_, from, err := l.twin.Limits(0)
		must(t, err)
		_ = ask(six) // an error may come back
		ls, _, err := l.twin.Limits(from)
		must(t, err)
		if len(ls) != 1 || ls[0].Kind != way.Translation {
			t.Errorf("to %s without the rule: limits %v, want one of kind %s", servers[six], ls, way.Translation)
		}
	}
}

// TestWhatNoLaneHas sends to where the host's link may have somebody and the twin
// has nobody. That it fails inside proves nothing.
func TestWhatNoLaneHas(t *testing.T) {
	l := newWaysLab(t)
	echo(t, l.server, "tcp", ":80")
	for _, c := range []struct {
		name  string
		frame func(own, gateway []byte) []byte
		want  way.Limit
	}{
		{"a neighbour whose address somebody wrote down", nil, way.Limit{Kind: way.Link, Subject: "eth0"}},
		{"a tagged frame", func(own, gateway []byte) []byte {
			f := synFrame(own, gateway, netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("203.0.113.80"), 80)
			return slices.Concat(f[:12], []byte{0x81, 0, 0, 7}, f[12:])
		}, way.Limit{Kind: way.Protocol, Subject: "VLAN"}},
		{"a question for a PPPoE server", func(own, _ []byte) []byte {
			return slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, own, []byte{0x88, 0x63}, make([]byte, 46))
		}, way.Limit{Kind: way.Protocol, Subject: "PPPoE"}},
		{"what a bridge tells bridges", func(own, _ []byte) []byte {
			return slices.Concat([]byte{0x01, 0x80, 0xc2, 0, 0, 0}, own, []byte{0, 38}, make([]byte, 46))
		}, way.Limit{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.mirror(t, Options{Ways: l.keeper})
			if c.frame == nil {
				l.run(t, "ip neigh replace 192.0.2.1 lladdr 02:00:5e:00:00:01 dev eth0 nud permanent")
				l.wantSilence(t, "tcp", servers[0]+":80")
			} else {
				fd, own, gateway := l.packetSocket(t)
				_, err := unix.Write(fd, c.frame(own, gateway))
				must(t, err)
				l.seenAs(t, "tcp", servers[0]+":80") // behind it
			}
			if ls := l.limits(t); c.want.Kind != "" {
				l.wantOnly(t, c.want.Kind, c.want.Subject)
			} else if len(ls) != 0 {
				t.Errorf("limits: %v", ls)
			}
		})
	}
}

// TestWayTakenAwayUnderAttempts removes the rule of a way that swallows everything
// while a client tries to get through, as a network manager does when it configures
// a link. The kernel sends the next attempt by the host's own way, and that answers.
func TestWayTakenAwayUnderAttempts(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	for family, dst := range map[string]string{"-4": "203.0.113.0/24", "-6": "2001:db8:80::/64"} {
		_, err := l.gw3.Run(t.Context(), "ip", family, "route", "replace", "blackhole", dst)
		must(t, err)
	}
	for six, server := range servers {
		family := [2]string{"-4", "-6"}[six]
		for network, try := range map[string]func() (string, error){
			"tcp": func() (string, error) { return pathWithin(t, l.inside, "tcp", server+":80", 2*time.Second) },
			"udp": func() (string, error) { return l.insist(server + ":80") },
			"icmp": func() (_ string, err error) {
				p := ping(t, l.inside, strings.Trim(server, "[]"))
				for n := range uint16(5) {
					if _, err = p.Write(p.request(77, n, nil)); err != nil {
						return "", err
					}
					var m []byte
					if m, _, err = p.reply(200 * time.Millisecond); err == nil && (m[0] == 0 || m[0] == 129) {
						return "a reply", nil
					}
				}
				return "", cmp.Or(err, error(unix.EHOSTUNREACH))
			},
		} {
			keeper := newTestKeeper(t, l.host) // one that has no way yet
			l.mirror(t, Options{Ways: keeper})
			l.run(t, "ip route replace default via 192.0.2.254")
			l.run(t, "ip -6 route replace default via 2001:db8:1::fe metric 1024")
			done := make(chan string, 1)
			go func() {
				got, err := try()
				done <- got + errText(err)
			}()
			eventually(t, "the way is there", func() bool { return strings.Contains(l.onHost(t, "ip "+family+" rule"), "fwmark 0x5b") })
			l.onHost(t, "ip "+family+" rule del pref 5100")
			if got := <-done; !strings.HasPrefix(got, "error: ") {
				t.Errorf("%s to %s: got through, seen as %q", network, server, got)
			}
			must(t, keeper.close())
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return "error: " + err.Error()
}

// insist sends a datagram again and again from one socket until it is answered.
func (l *testLab) insist(addr string) (string, error) {
	c, err := l.inside.Dial(context.Background(), "udp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	b := make([]byte, 128)
	for range 5 {
		if _, err = c.Write([]byte{0}); err != nil {
			continue
		}
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		var n int
		if n, err = c.Read(b); err == nil {
			return string(b[:n]), nil
		}
	}
	return "", err
}

// TestEveryPlaceIsTaken begins more handshakes with a silent network than there are
// places, at once: what is turned away before the first is old enough to be given up
// must not be taken for a loss.
func TestEveryPlaceIsTaken(t *testing.T) {
	l := newWaysLab(t)
	echo(t, l.server, "tcp", ":80")
	_, err := l.gw1.Run(t.Context(), "ip", "route", "add", "blackhole", "10.9.0.0/16")
	must(t, err)
	l.mirror(t, Options{Ways: l.keeper})
	fd, own, gateway := l.packetSocket(t)
	for i := range 513 {
		_, err := unix.Write(fd, synFrame(own, gateway, netip.MustParseAddr("192.0.2.2"), netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), 80))
		must(t, err)
	}
	eventually(t, "it is remembered", func() bool { return len(l.limits(t)) > 0 })
	l.wantOnly(t, way.Load, "streams")
}
