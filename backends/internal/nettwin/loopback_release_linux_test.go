package nettwin

import (
	"errors"
	"io"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestReleaseOfEveryKind starts a daemon inside on an address that takes what is
// sent to 127.0.0.1, in every way there is, and one that does not.
func TestReleaseOfEveryKind(t *testing.T) {
	l := newLab(t, nstest.NFT)
	greet(t, l.host, "127.0.0.1:7890", "host")
	greet(t, l.host, "192.0.2.2:7890", "host")
	greet(t, l.host, "[::1]:7890", "host")
	for _, c := range []struct {
		name, listen, addr, want string
		stolen                   string // another address whose answer the release takes away
	}{
		{"loopback", "127.0.0.1:7890", "127.0.0.1:7890", "twin", "192.0.2.2:7890"},
		{"every IPv4 address", "0.0.0.0:7890", "127.0.0.1:7890", "twin", "[::1]:7890"},
		{"every address, asked by IPv4", "[::]:7890", "127.0.0.1:7890", "twin", ""},
		{"every address, asked by IPv6", "[::]:7890", "[::1]:7890", "twin", ""},
		{"IPv4 in an IPv6 socket", "[::ffff:127.0.0.1]:7890", "127.0.0.1:7890", "twin", "[::1]:7890"},
		{"the host's own address", "192.0.2.2:7890", "192.0.2.2:7890", "twin", "127.0.0.1:7890"},
		{"IPv6 loopback", "[::1]:7890", "[::1]:7890", "twin", "127.0.0.1:7890"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.mirror(t, Options{Relay: []uint16{7890}})
			if got, err := l.ask(c.addr); got != "host" || err != nil {
				t.Fatalf("before: got %q, %v", got, err)
			}
			ln := greet(t, l.inside, c.listen, "twin")
			if got, err := l.ask(c.addr); got != c.want || err != nil {
				t.Errorf("at once: got %q, %v; want %q", got, err, c.want)
			}
			if got, err := fetchFrom(l.host, 0, c.addr); got != "host" || err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("on the host meanwhile: got %q, %v", got, err)
			}
			must(t, l.twin.Look())
			if got := l.twin.Status().Released; !slices.Equal(got, []uint16{7890}) {
				t.Errorf("released %v, want [7890]", got)
			}
			// A port is let go as a whole: a daemon that crashed must not be
			// answered for by the host's on another address.
			must(t, ln.Close())
			for _, addr := range []string{c.addr, c.stolen} {
				if addr == "" {
					continue
				}
				if got, err := l.ask(addr); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("%s after the end: got %q, %v; want connection refused", addr, got, err)
				}
			}
		})
	}
}

// TestReleaseOfDatagrams binds a datagram socket inside. The stream of the same
// port stays the host's, and the other way round.
func TestReleaseOfDatagrams(t *testing.T) {
	l := newLab(t, nstest.NFT)
	says(t, l.host, "127.0.0.1:7890", "host")
	greet(t, l.host, "127.0.0.1:7890", "host")
	for _, listen := range []string{"127.0.0.1:7890", "0.0.0.0:7890", "[::]:7890"} {
		l.mirror(t, Options{Relay: []uint16{7890}})
		if got, err := l.datagram("127.0.0.1:7890", "q"); got != "host q" || err != nil {
			t.Fatalf("%s: before: got %q, %v", listen, got, err)
		}
		c := says(t, l.inside, listen, "twin")
		if got, err := l.datagram("127.0.0.1:7890", "q"); got != "twin q" || err != nil {
			t.Errorf("%s: at once: got %q, %v", listen, got, err)
		}
		must(t, l.twin.Look())
		if got, err := l.ask("127.0.0.1:7890"); got != "host" || err != nil {
			t.Errorf("%s: tcp: got %q, %v", listen, got, err)
		}
		must(t, c.Close())
		if got, err := l.datagram("127.0.0.1:7890", "q"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: after the end: got %q, %v; want connection refused", listen, got, err)
		}
		must(t, l.twin.AddRelay(7890))
		if got, err := l.datagram("127.0.0.1:7890", "q"); got != "host q" || err != nil {
			t.Errorf("%s: asked for again: got %q, %v", listen, got, err)
		}
	}
}

// TestPortsAreFree binds inside, without SO_REUSEADDR and while they are relayed
// and in use, the ports that the twin relays.
func TestPortsAreFree(t *testing.T) {
	l := newLab(t, nstest.NFT)
	greet(t, l.host, "127.0.0.1:7890", "host")
	says(t, l.host, "127.0.0.1:7890", "host")
	l.mirror(t, Options{Relay: []uint16{7890}})
	if got, err := l.datagram("127.0.0.1:7890", "q"); got != "host q" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	for typ, name := range map[int]string{unix.SOCK_STREAM: "stream", unix.SOCK_DGRAM: "datagram"} {
		must(t, l.inside.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC, 0)
			must(t, err)
			defer unix.Close(fd)
			if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 7890}); err != nil {
				t.Errorf("bind a %s socket to the relayed port: %v", name, err)
			}
			return nil
		}))
	}
}

// TestServiceEnds follows the host's listener to its end.
func TestServiceEnds(t *testing.T) {
	l := newLab(t, nstest.NFT)
	ln := greet(t, l.host, "127.0.0.1:7890", "host")
	l.mirror(t, Options{Relay: []uint16{7890}})
	if got, err := l.ask("127.0.0.1:7890"); got != "host" || err != nil {
		t.Fatalf("before: got %q, %v", got, err)
	}
	must(t, ln.Close())
	eventually(t, "the port is refused", func() bool {
		_, err := l.ask("127.0.0.1:7890")
		return errors.Is(err, unix.ECONNREFUSED)
	})
	greet(t, l.host, "127.0.0.1:7890", "host again")
	eventually(t, "the new listener answers", func() bool {
		got, _ := l.ask("127.0.0.1:7890")
		return got == "host again"
	})
}

// TestCutTwinRelaysNothing: a check that only connects must fail where there is
// no way out.
func TestCutTwinRelaysNothing(t *testing.T) {
	l := newLab(t, nstest.NFT)
	greet(t, l.host, "127.0.0.1:7890", "host")
	says(t, l.host, "127.0.0.53:53", "host")
	l.mirror(t, Options{Relay: []uint16{7890}, Cut: true})
	if got, err := l.ask("127.0.0.1:7890"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("tcp: got %q, %v; want connection refused", got, err)
	}
	if got, err := l.datagram("127.0.0.53:53", "q"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("udp: got %q, %v; want connection refused", got, err)
	}
}
