package nettwin

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestEndsOfRelayedStreams holds the ends of a stream to a service on loopback
// against what they are on the host.
func TestEndsOfRelayedStreams(t *testing.T) {
	l := newLab(t, nstest.NFT)
	ln, err := l.host.Listen("tcp", "127.0.0.1:7890")
	must(t, err)
	defer ln.Close()
	l.mirror(t, Options{Relay: []uint16{7890}})
	dial := func(t *testing.T) *net.TCPConn {
		c, err := l.inside.Dial(within(t, 5*time.Second), "tcp", "127.0.0.1:7890")
		must(t, err)
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(10 * time.Second))
		return c.(*net.TCPConn)
	}
	t.Run("the client closes its half and the service goes on", func(t *testing.T) {
		done := accept(t, ln, func(c *net.TCPConn) error {
			defer c.Close()
			if _, err := io.ReadAll(c); err != nil {
				return err
			}
			_, err := c.Write(make([]byte, 5<<20))
			return err
		})
		c := dial(t)
		must(t, write(c, "question"))
		must(t, c.CloseWrite())
		b, err := io.ReadAll(c)
		if len(b) != 5<<20 || err != nil {
			t.Errorf("got %d bytes, %v", len(b), err)
		}
		must(t, <-done)
	})
	t.Run("the service resets", func(t *testing.T) {
		done := accept(t, ln, func(c *net.TCPConn) error {
			c.Read(make([]byte, 1))
			c.SetLinger(0)
			return c.Close()
		})
		c := dial(t)
		must(t, write(c, "q"))
		if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("got %v, want a reset", err)
		}
		must(t, <-done)
	})
	t.Run("the client resets", func(t *testing.T) {
		done := accept(t, ln, func(c *net.TCPConn) error {
			defer c.Close()
			_, err := io.ReadAll(c)
			return err
		})
		c := dial(t)
		must(t, write(c, "q"))
		c.SetLinger(0)
		must(t, c.Close())
		if err := <-done; !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the service got %v, want a reset", err)
		}
	})
}

// TestBulkThroughLoopback sends and gets back a few megabytes on many streams.
func TestBulkThroughLoopback(t *testing.T) {
	l := newLab(t, nstest.NFT)
	ln, err := l.host.Listen("tcp", "127.0.0.1:7890")
	must(t, err)
	defer ln.Close()
	go answer(ln, func(c net.Conn) {
		b, err := io.ReadAll(c)
		if err != nil {
			return
		}
		sum := sha256.Sum256(b)
		io.Copy(c, io.MultiReader(bytes.NewReader(sum[:]), bytes.NewReader(b)))
	})
	l.mirror(t, Options{Relay: []uint16{7890}})
	blob := make([]byte, 2<<20)
	rand.Read(blob)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := l.roundTrip("127.0.0.1:7890", blob); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
