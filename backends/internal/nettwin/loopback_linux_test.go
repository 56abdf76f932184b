package nettwin

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// greet answers every connection with a word.
func greet(t *testing.T, n *netlab.Node, addr, word string) net.Listener {
	t.Helper()
	ln, err := n.Listen("tcp", addr)
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, word)
			c.Close()
		}
	}()
	return ln
}

// ask connects from inside and returns all that comes.
func (l *testLab) ask(addr string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	c, err := l.inside.Dial(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(3 * time.Second))
	b, err := io.ReadAll(c)
	return string(b), err
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: not within 5 s", what)
}

func TestLoopbackRelay(t *testing.T) {
	l := newLab(t, nstest.NFT)
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	greet(t, l.host, "[::1]:7890", "host-proxy-v6")
	greet(t, l.host, "127.9.8.7:7890", "host-proxy-far")
	greet(t, l.host, "192.0.2.2:7891", "host-api")
	greet(t, l.host, "[2001:db8:1::2]:7891", "host-api-v6")
	greet(t, l.host, "192.0.2.2:7893", "unlisted")
	greet(t, l.host, "[2001:db8:1::2]:7893", "unlisted")
	greet(t, l.host, ":22", "host-sshd")
	l.mirror(t, Options{Relay: []uint16{7890, 7891, 7892}})

	for _, c := range []struct{ name, addr, want string }{
		{"an allowed port on 127.0.0.1", "127.0.0.1:7890", "host-proxy"},
		{"an allowed port on ::1", "[::1]:7890", "host-proxy-v6"},
		{"an allowed port on another address of 127/8", "127.9.8.7:7890", "host-proxy-far"},
		{"an allowed port on the host's own address", "192.0.2.2:7891", "host-api"},
		{"an allowed port on the host's own address, v6", "[2001:db8:1::2]:7891", "host-api-v6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := l.ask(c.addr); got != c.want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	for _, c := range []struct{ name, addr string }{
		{"ssh on loopback", "127.0.0.1:22"},
		{"ssh on loopback, v6", "[::1]:22"},
		{"ssh on the host's own address", "192.0.2.2:22"},
		{"a port that is not listed on the host's own address", "192.0.2.2:7893"},
		{"a port that is not listed on the host's own address, v6", "[2001:db8:1::2]:7893"},
		{"an allowed port where the host does not listen", "127.0.0.1:7892"},
		{"an allowed port on an address where the host does not listen", "127.0.0.1:7891"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := l.ask(c.addr); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("got %q, %v; want connection refused", got, err)
			}
		})
	}
}

func TestLoopbackRelaySurvivesFlush(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	l.mirror(t, Options{Relay: []uint16{7890}})
	_, err := l.inside.Run(t.Context(), "nft", "flush", "ruleset")
	must(t, err)
	if got, err := l.ask("127.0.0.1:7890"); got != "host-proxy" || err != nil {
		t.Errorf("after a flush: got %q, %v", got, err)
	}
	if out, err := l.inside.Run(t.Context(), "nft", "delete", "table", "inet", tableName); err == nil {
		t.Errorf("the inside deleted the relay's table: %s", out)
	}
}

func TestRelayedPortIsReleased(t *testing.T) {
	l := newLab(t, nstest.NFT)
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	l.mirror(t, Options{Relay: []uint16{7890}})
	ln := greet(t, l.inside, "127.0.0.1:7890", "twin-proxy")
	if got, err := l.ask("127.0.0.1:7890"); got != "twin-proxy" || err != nil {
		t.Errorf("the listener inside is not asked from the first moment: got %q, %v", got, err)
	}
	eventually(t, "the port is released", func() bool { return slices.Equal(l.twin.Status().Released, []uint16{7890}) })
	must(t, ln.Close())
	if got, err := l.ask("127.0.0.1:7890"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after the listener inside ended: got %q, %v; want connection refused", got, err)
	}
	must(t, l.twin.AddRelay(7890))
	if got, err := l.ask("127.0.0.1:7890"); got != "host-proxy" || err != nil {
		t.Errorf("asked for again: got %q, %v", got, err)
	}
}

func TestRelayFollowsTheHost(t *testing.T) {
	l := newLab(t, nstest.NFT)
	l.mirror(t, Options{Relay: []uint16{7890}})
	if got, err := l.ask("127.0.0.1:7890"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatalf("before: got %q, %v; want connection refused", got, err)
	}
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	eventually(t, "the host's new listener answers", func() bool {
		got, _ := l.ask("127.0.0.1:7890")
		return got == "host-proxy"
	})
}

// TestInsideCannotForgeTheDestination has root inside send what it likes to the
// relay's sockets: by nat and by TPROXY rules of its own.
func TestInsideCannotForgeTheDestination(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	greet(t, l.host, ":22", "host-sshd")
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	l.mirror(t, Options{Relay: []uint16{7890}})
	ours := l.twin.loop.gates[gate{nft.Direct, unix.IPPROTO_TCP, false}]
	for _, forgery := range []string{
		"chain out { type nat hook output priority -150; tcp dport 22 dnat to " + ours.String() + "; };",
		"chain out { type nat hook output priority -150; ip daddr 203.0.113.80 tcp dport 22 dnat to 127.0.0.1:22; };",
		"chain in { type filter hook prerouting priority -150; iif lo tcp dport 22 tproxy to " + ours.String() + "; };",
	} {
		_, err := l.inside.Run(t.Context(), "nft", "add table ip forge; flush table ip forge; table ip forge { "+forgery+" };")
		must(t, err)
		for _, addr := range []string{"127.0.0.1:22", "192.0.2.2:22", "203.0.113.80:22"} {
			if got, err := l.ask(addr); err == nil || got != "" {
				t.Errorf("%s: %s: got %q, %v; want nothing", forgery, addr, got, err)
			}
		}
		if got, err := l.ask("127.0.0.1:7890"); got != "host-proxy" || err != nil {
			t.Errorf("%s: the allowed port: got %q, %v", forgery, got, err)
		}
		_, err = l.inside.Run(t.Context(), "nft", "delete table ip forge")
		must(t, err)
	}
	if c, err := l.twin.Counts(); err != nil || c.Fenced == 0 {
		t.Errorf("nothing was fenced: %+v, %v", c, err)
	}
}
