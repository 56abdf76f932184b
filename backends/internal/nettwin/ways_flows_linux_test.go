package nettwin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// say sends a word and expects it back.
func say(c net.Conn, r *bufio.Reader, word string) error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, word+"\n"); err != nil {
		return err
	}
	got, err := r.ReadString('\n')
	if err != nil || got != word+"\n" {
		return fmt.Errorf("got %q, %w", got, err)
	}
	return nil
}

// TestStreamOutlivesRoutes changes the twin's routes under open connections. Their
// next segments come by another lane; they go on by the one that they had, and
// end there in order.
func TestStreamOutlivesRoutes(t *testing.T) {
	l := newWaysLab(t)
	echo(t, l.server, "tcp", ":82")
	l.paths(t, "80")
	l.paths(t, "81")
	l.mirror(t, Options{Ways: l.keeper})
	type open struct {
		c net.Conn
		r *bufio.Reader
	}
	var all []open
	for six, server := range servers {
		c, err := l.inside.Dial(within(t, 5*time.Second), "tcp", server+":82")
		must(t, err)
		defer c.Close()
		r := bufio.NewReader(c)
		must(t, c.SetDeadline(time.Now().Add(5*time.Second)))
		if seen, err := r.ReadString('\n'); "one "+seen != byGW1[six]+"\n" {
			t.Fatalf("seen as %q, %v", seen, err)
		}
		must(t, say(c, r, "before"))
		all = append(all, open{c, r})
	}
	for i, line := range []string{
		"ip route replace default via 192.0.2.254", "ip -6 route replace default via 2001:db8:1::fe", // then back, then to a third
		"ip route replace default via 192.0.2.1", "ip -6 route replace default via 2001:db8:1::1",
		"ip route replace default via 192.0.2.77", "ip -6 route replace default via 2001:db8:1::77",
	} {
		l.run(t, line)
		for _, o := range all {
			if err := say(o.c, o.r, fmt.Sprint("after change ", i)); err != nil {
				t.Errorf("after %q: %v", line, err)
			}
		}
	}
	for _, o := range all {
		must(t, o.c.(*net.TCPConn).CloseWrite())
		if b, err := io.ReadAll(o.r); len(b) != 0 || err != nil {
			t.Errorf("after the end: %q, %v", b, err)
		}
		o.c.Close()
	}
	eventually(t, "all streams have ended", func() bool { return l.counts(t).Open == 0 })
}

// TestRoutesChangeWhileConnecting repairs a route under a connect that nobody
// answers: the kernel's next SYN takes the new way, and is answered.
func TestRoutesChangeWhileConnecting(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	l.mirror(t, Options{Ways: l.keeper})
	l.run(t, "ip route replace default via 192.0.2.77")
	type result struct {
		seen string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		seen, err := path(t, l.inside, "tcp", servers[0]+":80")
		done <- result{seen, err}
	}()
	eventually(t, "the connect is under way", func() bool { return l.keeper.lanes() == 1 })
	l.run(t, "ip route replace default via 192.0.2.254")
	if got := <-done; got.seen != byGW3[0] || got.err != nil {
		t.Errorf("seen as %q, %v; want %q", got.seen, got.err, byGW3[0])
	}
}

// TestThousandOnAWay opens a thousand streams at once on a way of the twin's own.
func TestThousandOnAWay(t *testing.T) {
	l := newWaysLab(t)
	echo(t, l.server, "tcp", ":82")
	l.mirror(t, Options{Ways: l.keeper})
	l.run(t, "ip route replace default via 192.0.2.254")
	const n = 1000
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	began := time.Now()
	for range n {
		wg.Go(func() {
			c, err := l.inside.Dial(within(t, 30*time.Second), "tcp", servers[0]+":82")
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			open = append(open, c)
		})
	}
	wg.Wait()
	t.Logf("%d streams in %v", len(open), time.Since(began))
	if lanes, flows := l.keeper.lanes(), l.keeper.open(); lanes != 1 || flows != len(open) {
		t.Errorf("%d lanes, %d flows; want 1, %d", lanes, flows, len(open))
	}
	for _, c := range open {
		if err := say(c, bufio.NewReader(c), "x"); err == nil { // the address comes first
			t.Error("the server did not say whom it saw")
		}
		c.Close()
	}
	// Handshakes beyond those that may be under way at once are asked for again, and
	// it is said that they were.
	ls := slices.DeleteFunc(l.limits(t), func(m way.Limit) bool { return m.Kind == way.Load && m.Subject == "streams" })
	if len(ls) != 0 {
		t.Errorf("limits: %v", ls)
	}
	eventually(t, "the host holds nothing for streams that ended", func() bool { return l.keeper.open() == 0 })
}

// TestRelayDiesOnAWay kills the relay while the host lets answers in for it.
func TestRelayDiesOnAWay(t *testing.T) {
	l := newWaysLab(t)
	echo(t, l.server, "tcp", ":82")
	l.mirror(t, Options{Ways: l.keeper})
	l.run(t, "ip route replace default via 198.51.100.1")
	c, err := l.inside.Dial(within(t, 5*time.Second), "tcp", servers[0]+":82")
	must(t, err)
	defer c.Close()
	if n := l.keeper.open(); n != 1 {
		t.Fatalf("%d flows are let in, want 1", n)
	}
	must(t, unix.Kill(l.twin.Status().Relay, unix.SIGKILL))
	eventually(t, "the host holds nothing for a dead relay", func() bool { return l.keeper.open() == 0 })
}

// TestLastWords ends streams on a way whose answers have to be let in: what is on
// its way to a slow reader arrives in full, and a reset arrives as one.
func TestLastWords(t *testing.T) {
	l := newWaysLab(t)
	l.mirror(t, Options{Ways: l.keeper})
	l.run(t, "ip route replace default via 198.51.100.1")
	ln, err := l.server.Listen("tcp", "203.0.113.80:83")
	must(t, err)
	defer ln.Close()
	const size = 8 << 20
	c, err := l.inside.Dial(within(t, 5*time.Second), "tcp", servers[0]+":83")
	must(t, err)
	s, err := ln.Accept()
	must(t, err)
	defer s.Close()
	must(t, s.(*net.TCPConn).CloseWrite())
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, size))
		written <- errors.Join(err, c.Close())
	}()
	must(t, s.SetDeadline(time.Now().Add(20*time.Second)))
	n, err := io.Copy(io.Discard, s)
	if n != size || err != nil {
		t.Errorf("the server got %d bytes, %v; want %d", n, err, size)
	}
	must(t, <-written)

	c, err = l.inside.Dial(within(t, 5*time.Second), "tcp", servers[0]+":83")
	must(t, err)
	if s, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	must(t, c.(*net.TCPConn).SetLinger(0))
	must(t, c.Close())
	must(t, s.SetDeadline(time.Now().Add(5*time.Second)))
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the server got %v, want a reset", err)
	}
	eventually(t, "the host holds nothing for streams that ended", func() bool { return l.keeper.open() == 0 })
}
