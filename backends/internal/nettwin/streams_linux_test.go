package nettwin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestReconnect connects again and again from one port to a server that closes
// first. An endpoint that waited in TIME_WAIT would swallow the second SYN.
func TestReconnect(t *testing.T) {
	l := newLab(t)
	greet(t, l.server, ":93", "bye")
	l.mirror(t, Options{})
	once := func() error {
		d := net.Dialer{Timeout: 3 * time.Second, LocalAddr: &net.TCPAddr{Port: 40000}, Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		}}
		c, err := d.DialContext(t.Context(), "tcp", "203.0.113.80:93")
		if err != nil {
			return err
		}
		defer c.Close()
		if b, err := io.ReadAll(c); string(b) != "bye" {
			return errors.Join(err, fmt.Errorf("got %q", b))
		}
		return nil
	}
	for i := range 15 {
		eventually(t, "the port is free again", func() bool {
			if l.counts(t).Open != 0 {
				return false
			}
			err := l.inside.Do(once)
			if errors.Is(err, unix.EADDRNOTAVAIL) { // the last one is not acknowledged yet
				return false
			}
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			return true
		})
	}
}

// accept runs f on the next connection to a server.
func accept(t *testing.T, ln net.Listener, f func(c *net.TCPConn) error) <-chan error {
	done := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			c.SetDeadline(time.Now().Add(10 * time.Second))
			err = f(c.(*net.TCPConn))
		}
		done <- err
	}()
	return done
}

// TestManyFlows carries 100 streams at once, both ways, and compares hashes.
func TestManyFlows(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	ln, err := l.server.Listen("tcp", ":91")
	must(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // hash what comes, then send the hash and the same again
				defer c.Close()
				h, b := sha256.New(), new(bytes.Buffer)
				io.Copy(io.MultiWriter(h, b), c)
				c.Write(h.Sum(nil))
				io.Copy(c, b)
			}()
		}
	}()
	l.mirror(t, Options{})
	const flows, size = 100, 1 << 20
	var wg sync.WaitGroup
	for i := range flows {
		wg.Go(func() {
			addr := "203.0.113.80:91"
			if i%2 == 1 {
				addr = "[2001:db8:80::80]:91"
			}
			if err := l.roundTrip(addr, bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, size/3)); err != nil {
				t.Errorf("flow %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	// The transmit ring of the TAP is the one place that could drop.
	out, err := l.inside.Run(t.Context(), "ip", "-s", "-s", "link", "show", "eth0")
	must(t, err)
	if m := txDropped.FindStringSubmatch(out); m == nil || m[1] != "0" {
		t.Errorf("the twin's kernel dropped frames: %q\n%s", m, out)
	}
}

// txDropped finds the fourth number behind "TX: bytes packets errors dropped".
var txDropped = regexp.MustCompile(`TX:\s+bytes\s+packets\s+errors\s+dropped.*\n\s*\d+\s+\d+\s+\d+\s+(\d+)`)

func (l *testLab) roundTrip(addr string, blob []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := l.inside.Dial(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(blob); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	back, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if want := sha256.Sum256(blob); len(back) < 32 || !bytes.Equal(back[:32], want[:]) || !bytes.Equal(back[32:], blob) {
		return errors.New("content is not what was sent")
	}
	return nil
}

// TestScanStarvesNobody fills every place for outer handshakes with silent ones.
func TestScanStarvesNobody(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	echo(t, l.server, "tcp", ":80")
	_, err := l.gw1.Run(t.Context(), "nft", "table inet f { chain through { type filter hook forward priority 0; ip daddr 203.0.113.80 tcp dport != 80 drop; }; }")
	must(t, err)
	l.mirror(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	must(t, l.inside.Do(func() error {
		for port := range 600 {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			wg.Go(func() { <-ctx.Done(); unix.Close(fd) })
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 1000 + port, Addr: [4]byte{203, 0, 113, 80}}); err != unix.EINPROGRESS {
				return err
			}
		}
		return nil
	}))
	if err := l.connect("tcp", "203.0.113.80:80", 8*time.Second); err != nil {
		t.Errorf("beside a scan: %v", err)
	}
}
