package nettwin

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// says answers every datagram with a word and the datagram.
func says(t *testing.T, n *netlab.Node, addr, word string) net.PacketConn {
	t.Helper()
	c, err := n.ListenPacket("udp", addr)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(append([]byte(word+" "), b[:n]...), from)
		}
	}()
	return c
}

// TestDatagramRelay sends to allow-listed ports. The client's sockets are
// connected, so an answer from any other address than the one asked would not
// arrive.
func TestDatagramRelay(t *testing.T) {
	l := newLab(t, nstest.NFT)
	says(t, l.host, "127.0.0.1:7890", "loopback")
	says(t, l.host, "[::1]:7890", "loopback-v6")
	says(t, l.host, "192.0.2.2:7891", "own")
	says(t, l.host, "[2001:db8:1::2]:7891", "own-v6")
	says(t, l.host, "[::]:7892", "any")
	says(t, l.host, "127.9.8.7:7894", "far")
	says(t, l.host, "0.0.0.0:7895", "unlisted")
	l.mirror(t, Options{Relay: []uint16{7890, 7891, 7892, 7893, 7894}})
	for _, c := range []struct{ name, addr, want string }{
		{"on 127.0.0.1", "127.0.0.1:7890", "loopback"},
		{"on ::1", "[::1]:7890", "loopback-v6"},
		{"on the host's own address", "192.0.2.2:7891", "own"},
		{"on the host's own address, v6", "[2001:db8:1::2]:7891", "own-v6"},
		{"on every address, asked at 127.0.0.1", "127.0.0.1:7892", "any"},
		{"on another address of 127/8", "127.9.8.7:7894", "far"},
		{"on every address, asked at ::1", "[::1]:7892", "any"},
		{"on every address, asked at the host's", "198.51.100.2:7892", "any"},
		{"on every address, asked at the host's, v6", "[2001:db8:2::2]:7892", "any"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{0, 1, 1473, 60000} {
				q := strings.Repeat("q", size)
				if got, err := l.datagram(c.addr, q); got != c.want+" "+q || err != nil {
					t.Errorf("%d bytes: got %.20q, %v; want %s", size, got, err, c.want)
				}
			}
		})
	}
	for _, c := range []struct{ name, addr string }{
		{"a port that is not listed", "127.0.0.1:7895"},
		{"a port that is not listed, on the host's own address", "192.0.2.2:7895"},
		{"a listed port where nobody is bound", "127.0.0.1:7893"},
		{"a listed port on an address where nobody is bound", "127.0.0.1:7891"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := l.datagram(c.addr, "q"); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("got %q, %v; want connection refused", got, err)
			}
		})
	}
}

// TestDatagramServiceEnds closes the host's socket under a flow: the next
// datagram is refused inside too, before the relay has noticed and after.
func TestDatagramServiceEnds(t *testing.T) {
	l := newLab(t, nstest.NFT)
	for _, addr := range []string{"127.0.0.1:7890", "[::1]:7890"} {
		c := says(t, l.host, addr, "host")
		l.mirror(t, Options{Relay: []uint16{7890}})
		in, err := l.inside.Dial(t.Context(), "udp", addr)
		must(t, err)
		defer in.Close()
		in.SetDeadline(time.Now().Add(5 * time.Second))
		b := make([]byte, 16)
		for range 2 {
			must(t, write(in, "q"))
			n, err := in.Read(b)
			if string(b[:n]) != "host q" || err != nil {
				t.Fatalf("%s: got %q, %v", addr, b[:n], err)
			}
		}
		must(t, c.Close())
		must(t, write(in, "q"))
		if n, err := in.Read(b); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: after the end: got %q, %v; want connection refused", addr, b[:n], err)
		}
		must(t, l.twin.Look()) // looks at the host now
		if got, err := l.datagram(addr, "q"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: a new flow: got %q, %v; want connection refused", addr, got, err)
		}
	}
}

// TestDatagramFlowsAreSeparate has many clients at once, each answered with its own.
func TestDatagramFlowsAreSeparate(t *testing.T) {
	l := newLab(t, nstest.NFT)
	says(t, l.host, "127.0.0.1:7890", "host")
	l.mirror(t, Options{Relay: []uint16{7890}})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			q := fmt.Sprintf("client %d", i)
			if got, err := l.datagram("127.0.0.1:7890", q); got != "host "+q || err != nil {
				t.Errorf("client %d: got %q, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	if c := l.counts(t); c.Flows < 100 || c.Dropped != 0 {
		t.Errorf("counts: %+v, want 100 flows and nothing dropped", c)
	}
}

// TestDatagramFlowsAreBounded sends from more ports than the relay keeps flows.
func TestDatagramFlowsAreBounded(t *testing.T) {
	l := newLab(t, nstest.NFT)
	says(t, l.host, "127.0.0.1:7890", "host")
	greet(t, l.host, "127.0.0.1:7890", "host")
	l.mirror(t, Options{Relay: []uint16{7890}})
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:7890"))
	var clients []net.PacketConn
	for range 1100 {
		c, err := l.inside.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
		defer c.Close()
		clients = append(clients, c)
	}
	eventually(t, "what is too much is dropped", func() bool {
		for _, c := range clients { // some may be lost on the way, as anywhere
			_, err := c.WriteTo([]byte("q"), to)
			must(t, err)
		}
		return l.counts(t).Dropped > 0
	})
	l.wantLimit(t, 0, way.Load, "127.0.0.1:7890")
	if n := l.counts(t).Open; n != 1024 {
		t.Errorf("%d flows are open, want 1024", n)
	}
	if got, err := l.ask("127.0.0.1:7890"); got != "host" || err != nil {
		t.Errorf("a stream meanwhile: got %q, %v", got, err)
	}
}

func write(w io.Writer, s string) error {
	_, err := io.WriteString(w, s)
	return err
}
