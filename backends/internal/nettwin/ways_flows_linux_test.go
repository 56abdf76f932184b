package nettwin

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
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
	l.pathsUDP(t, "81")
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

// TestThousandOnAWay opens a thousand streams at once on a way of the twin's own,
// each of which needs its own permission to be answered.
func TestThousandOnAWay(t *testing.T) {
	l := newWaysLab(t)
	echo(t, l.server, "tcp", ":82")
	l.mirror(t, Options{Ways: l.keeper})
	l.run(t, "ip route replace default via 198.51.100.1")
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
	t.Logf("%d streams in %v, %d flows let in", len(open), time.Since(began), l.keeper.open())
	for _, c := range open {
		if err := say(c, bufio.NewReader(c), "x"); err == nil { // the address comes first
			t.Error("the server did not say whom it saw")
		}
		c.Close()
	}
	if ls := l.limits(t); len(ls) != 0 {
		t.Errorf("limits: %v", ls)
	}
	must(t, l.twin.Close())
	if k := l.keeper.open(); k != 0 {
		t.Errorf("%d flows are let in after the twin's end", k)
	}
}
