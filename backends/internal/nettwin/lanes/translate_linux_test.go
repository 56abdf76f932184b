package lanes

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// TestTranslatedAsksForOneFlow has a host that redirects and rewrites what it
// sends itself, as transparent proxies do.
func TestTranslatedAsksForOneFlow(t *testing.T) {
	l := newLab(t)
	l.run(t, l.host, "nft", `table inet proxy { chain out { type nat hook output priority -100;
		ip daddr 203.0.113.80 tcp dport 81 redirect to :7890
		ip daddr 203.0.113.80 tcp dport 82 dnat ip to 203.0.113.80:80
		ip6 daddr 2001:db8:80::80 tcp dport 81 redirect to :7890
		ip daddr 203.0.113.80 udp dport 53 dnat ip to 203.0.113.80:5353
		ip daddr 203.0.113.80 udp dport 54 redirect to :54
	}; }`)
	for _, network := range []string{"tcp4", "tcp6"} {
		ln, err := l.host.Listen(network, ":7890")
		must(t, err)
		defer ln.Close()
	}
	before := l.dump(t)
	ls := l.lanes(t, Options{})
	for _, c := range []struct{ name, network, to, want string }{
		{"redirected", "tcp", server4 + ":81", "127.0.0.1:7890"},
		{"redirected, IPv6", "tcp", "[" + server6 + "]:81", "[::1]:7890"},
		{"sent to another port", "tcp", server4 + ":82", server4 + ":80"},
		{"as it is", "tcp", server4 + ":80", ""},
		{"as it is, IPv6", "tcp", "[" + server6 + "]:80", ""},
		{"a datagram sent to another port", "udp", server4 + ":53", server4 + ":5353"},
		{"a datagram as it is", "udp", server4 + ":55", ""},
		{"a redirect to the port that it had", "udp", server4 + ":54", "127.0.0.1:54"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := l.host.Dial(t.Context(), c.network, c.to)
			must(t, err)
			defer conn.Close()
			f := way.Flow{Proto: unix.IPPROTO_TCP, Src: netip.MustParseAddrPort(conn.LocalAddr().String()), Dst: netip.MustParseAddrPort(c.to)}
			if c.network == "udp" {
				f.Proto = unix.IPPROTO_UDP
				_, err := conn.Write([]byte("?"))
				must(t, err)
			}
			got, err := ls.Translated(f)
			must(t, err)
			want := netip.AddrPort{}
			if c.want != "" {
				want = netip.MustParseAddrPort(c.want)
			}
			if got != want {
				t.Errorf("sent to %v, want %v", got, want)
			}
			f.Src = netip.AddrPortFrom(f.Src.Addr(), f.Src.Port()^1)
			if got, err := ls.Translated(f); err != nil || got.IsValid() {
				t.Errorf("a flow that is not there is sent to %v (%v)", got, err)
			}
		})
	}
	l.same(t, before)
	must(t, ls.Close())
	if _, err := ls.Translated(way.Flow{Proto: unix.IPPROTO_TCP}); err == nil {
		t.Error("connection tracking was asked after Close")
	}
}

// TestTranslatedSourceIsALimit has a host that gives some of what it sends another
// source, as it does for whoever is behind it.
func TestTranslatedSourceIsALimit(t *testing.T) {
	l := newLab(t)
	must(t, l.host.Address("lo", "10.8.0.2/32"))
	l.run(t, l.host, "nft", "table ip n { chain out { type nat hook postrouting priority srcnat; ip saddr 10.8.0.0/24 masquerade; }; }")
	ls := l.lanes(t, Options{})
	for src, want := range map[string]bool{"10.8.0.2": true, "192.0.2.2": false} {
		fd, at := l.bound(t, 0, src)
		defer unix.Close(fd)
		greeting(t, fd, 3*time.Second)
		got, err := ls.Translated(way.Flow{Proto: unix.IPPROTO_TCP, Src: at, Dst: netip.AddrPortFrom(netip.MustParseAddr(server4), 80)})
		if want {
			wantLimit(t, err, way.Translation)
		} else {
			must(t, err)
		}
		if got.IsValid() {
			t.Errorf("from %s: sent to %v, want it where it was sent", src, got)
		}
	}
}
