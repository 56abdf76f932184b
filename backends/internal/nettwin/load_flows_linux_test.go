package nettwin

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestFiftyThousandFlows carries 25 000 streams and 25 000 datagram flows, some
// hundred at a time. Nothing of them may be left, on the host or in the relay,
// and the environment beside works all the time.
func TestFiftyThousandFlows(t *testing.T) {
	const flows, batch = 25_000, 500
	l := newLab(t, nstest.NFT)
	echo(t, l.server, "tcp", ":80")
	echoUDP(t, l.server, ":5353")
	other := l.neighbour(t)
	l.mirror(t, Options{})
	host := dump(t, int(l.host.NS().Fd()))
	servers := []string{"203.0.113.80", "[2001:db8:80::80]"}
	for i := range flows / batch {
		server := servers[i%len(servers)]
		l.brief(t, l.opened(t, unix.SOCK_STREAM, server+":80", batch), i%3 == 0)
		l.answered(t, server+":5353", batch)
		if i%10 == 0 {
			t.Logf("beside it %v a connection", other.latency(t))
		}
	}
	if c := l.counts(t); c.Flows < 2*flows*9/10 { // ports come round: some flows carry two sockets
		t.Errorf("%d flows were carried, want about %d", c.Flows, 2*flows)
	}
	l.survived(t, other, host)
}

// brief has a word on each stream and ends it, or breaks it off.
func (l *testLab) brief(t *testing.T, files []*os.File, abort bool) {
	t.Helper()
	errs := make([]error, len(files))
	var wg sync.WaitGroup
	for i, f := range files {
		wg.Go(func() {
			errs[i] = call(f, strconv.Itoa(i))
			if abort {
				errs[i] = errors.Join(errs[i], control(f, func(fd int) error {
					return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
				}))
			}
			errs[i] = errors.Join(errs[i], f.Close())
		})
	}
	wg.Wait()
	must(t, errors.Join(errs...))
}

// answered sends a datagram from each of some new ports and waits for the answer.
func (l *testLab) answered(t *testing.T, addr string, n int) {
	t.Helper()
	files := l.opened(t, unix.SOCK_DGRAM, addr, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, f := range files {
		wg.Go(func() { errs[i] = errors.Join(exchange(f, strconv.Itoa(i)), f.Close()) })
	}
	wg.Wait()
	must(t, errors.Join(errs...))
}

// exchange sends a datagram until it is answered, as every client of UDP does. That
// one was too big for the path is told by the next call, on the host too.
func exchange(f *os.File, word string) error {
	b := make([]byte, 2048)
	for range 10 {
		if err := f.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		n := 0
		_, err := f.WriteString(word)
		if err == nil {
			n, err = f.Read(b)
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.EMSGSIZE):
			continue
		case err != nil:
			return err
		case n < len(word) || string(b[n-len(word):n]) != word:
			return fmt.Errorf("got %.40q for %.40q", b[:n], word)
		}
		return nil
	}
	return io.ErrNoProgress
}
