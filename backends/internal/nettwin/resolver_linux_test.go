package nettwin

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestNameservers(t *testing.T) {
	got := nameservers(strings.NewReader("# nameserver 9.9.9.9\nsearch example\nnameserver 127.0.0.53\n nameserver\t::1 extra\n" +
		"nameserver fe80::1%eth0\nnameserver ::ffff:10.0.0.1\nnameserver none\nnameserver\noptions edns0\n"))
	var want []netip.Addr
	for _, s := range []string{"127.0.0.53", "::1", "fe80::1", "10.0.0.1"} {
		want = append(want, netip.MustParseAddr(s))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestResolverStubs asks name servers on the host's loopback and on its own
// address, by both protocols.
func TestResolverStubs(t *testing.T) {
	l := newLab(t, nstest.NFT)
	conf := t.TempDir() + "/resolv.conf"
	must(t, os.WriteFile(conf, []byte("nameserver 127.0.2.1\nnameserver ::1\nnameserver 192.0.2.2\nnameserver 203.0.113.80\n"), 0o600))
	for _, a := range []string{"127.0.0.53:53", "127.0.2.1:53", "[::1]:53", "192.0.2.2:53"} {
		echoUDP(t, l.host, a)
		greet(t, l.host, a, "tcp "+a)
	}
	echoUDP(t, l.host, "127.0.3.1:53")
	greet(t, l.host, "127.0.3.1:53", "unnamed")
	l.mirror(t, Options{ResolvConf: conf})

	for _, c := range []struct{ name, addr string }{
		{"systemd-resolved's, though resolv.conf does not name it", "127.0.0.53:53"},
		{"another loopback address", "127.0.2.1:53"},
		{"v6 loopback", "[::1]:53"},
		{"the host's own address", "192.0.2.2:53"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{20, 4000} {
				q := strings.Repeat("q", size)
				got, err := l.datagram(c.addr, q)
				if _, body, _ := strings.Cut(got, "\n"); body != q || err != nil {
					t.Errorf("udp, %d bytes: got %.40q, %v", size, got, err)
				}
			}
			if got, err := l.ask(c.addr); got != "tcp "+c.addr || err != nil {
				t.Errorf("tcp: got %q, %v", got, err)
			}
		})
	}
	for _, addr := range []string{"127.0.3.1:53", "127.0.0.54:53"} {
		if got, err := l.datagram(addr, "q"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s, which nobody named or serves: got %q, %v; want connection refused", addr, got, err)
		}
		if got, err := l.ask(addr); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: got %q, %v; want connection refused", addr, got, err)
		}
	}
}

// TestResolverInside runs one inside: it is asked instead of the host's.
func TestResolverInside(t *testing.T) {
	l := newLab(t, nstest.NFT)
	greet(t, l.host, "127.0.0.53:53", "host")
	echoUDP(t, l.host, "127.0.0.53:53")
	l.mirror(t, Options{Resolvers: []netip.Addr{}})
	if got, err := l.ask("127.0.0.53:53"); got != "host" || err != nil {
		t.Fatalf("before: got %q, %v", got, err)
	}
	c, err := l.inside.ListenPacket("udp", "127.0.0.53:53")
	must(t, err)
	defer c.Close()
	greet(t, l.inside, "127.0.0.53:53", "twin")
	eventually(t, "the resolver inside is asked", func() bool {
		got, _ := l.ask("127.0.0.53:53")
		return got == "twin"
	})
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(append([]byte("twin "), b[:n]...), from)
		}
	}()
	got, err := l.datagramWithin("127.0.0.53:53", "q", time.Second)
	if got != "twin q" || err != nil {
		t.Errorf("udp: got %q, %v", got, err)
	}
}
