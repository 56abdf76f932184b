package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

// patience bounds what a tool of the network waits for. It leaves room for a first
// packet that is sent again. A canary waits for so long where the way out is cut, if
// nothing ends it before.
const patience = 3 * time.Second

// tools are what lab can do with a network.
var tools = map[string]func(args []string) error{
	"get": labGet, "datagram": labDatagram, "line": labLine, "beat": labBeat, "beating": labBeating,
	"greet": labGreet, "resolve": labResolve, "divert": labDivert, "fakeip": labFakeIP, "scan": labScan,
}

// labGet prints the first line that an HTTP server says, and reads to the end:
// `lab get 203.0.113.80/?more=65536`.
func labGet(args []string) error {
	r, err := (&http.Client{Timeout: patience, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}).Get("http://" + args[0])
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b := bufio.NewReader(r.Body)
	first, err := b.ReadString('\n')
	if err != nil {
		return err
	}
	fmt.Print(first)
	_, err = io.Copy(io.Discard, b)
	return err
}

// labDatagram sends one and prints the answer. Lost datagrams are sent again, as a
// resolver would.
func labDatagram(args []string) error {
	c, err := net.Dial("udp", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 64<<10)
	for end := time.Now().Add(patience); ; {
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		c.SetReadDeadline(time.Now().Add(patience / 12))
		n, err := c.Read(b)
		if err == nil {
			_, err = os.Stdout.Write(b[:n])
			return err
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
			return err
		}
	}
}

// labLine connects ("tcp" "127.0.0.1:80", "unix" "@abstract") and prints the first
// line it is sent.
func labLine(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: lab line NETWORK ADDR")
	}
	c, err := net.DialTimeout(args[0], args[1], patience)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	s, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(s)
	return err
}

// labGreet listens and sends everybody a line: `lab greet NETWORK ADDR WORD`.
func labGreet(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: lab greet NETWORK ADDR WORD")
	}
	ln, err := net.Listen(args[0], args[1])
	if err != nil {
		return err
	}
	return eachConn(ln, func(c net.Conn) { fmt.Fprintln(c, args[2]) })
}

// A heart beats so often, and a beat that takes longer than a gap counts as one:
// on a machine with other work a process may have to wait for its turn.
const (
	beatEvery = 20 * time.Millisecond
	beatGap   = 1500 * time.Millisecond
)

// labBeat keeps a connection busy, one byte there and back at a time, and its
// record in a file: `lab beat ADDR FILE`. It ends when the connection does.
func labBeat(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: lab beat ADDR FILE")
	}
	c, err := net.DialTimeout("tcp", args[0], patience)
	if err != nil {
		return err
	}
	defer c.Close()
	var n, gaps int
	b := []byte{0}
	for tick := time.NewTicker(beatEvery); ; <-tick.C {
		start := time.Now()
		c.SetDeadline(start.Add(time.Minute))
		_, err := c.Write(b)
		if err == nil {
			_, err = io.ReadFull(c, b)
		}
		n++
		if time.Since(start) > beatGap {
			gaps++
		}
		record := fmt.Sprintf("%d beats, %d gaps", n, gaps)
		if err != nil {
			record += ", ended: " + err.Error()
		}
		if err := errors.Join(err, renameio.WriteFile(args[1], []byte(record), 0o644)); err != nil {
			return err
		}
	}
}

// labBeating waits for the next beats of a heart and fails when it ever missed one.
func labBeating(args []string) error {
	first := -1
	for end := time.Now().Add(2 * patience); ; time.Sleep(beatEvery) {
		b, err := os.ReadFile(args[0])
		var n, gaps int
		if err == nil {
			_, err = fmt.Sscanf(string(b), "%d beats, %d gaps", &n, &gaps)
		}
		switch {
		case err == nil && (gaps > 0 || strings.Contains(string(b), "ended")):
			return errors.New(string(b))
		case err == nil && first < 0:
			first = n
		case err == nil && n > first+2:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("no beat: %s: %w", b, errors.Join(err, os.ErrDeadlineExceeded))
		}
	}
}

// labScan connects to every address of a prefix, many at a time: `lab scan
// 10.99.0.0/16`. Nobody has to answer.
func labScan(args []string) error {
	prefix, err := netip.ParsePrefix(args[0])
	if err != nil {
		return err
	}
	slots := make(chan struct{}, 1000)
	for a := prefix.Addr(); prefix.Contains(a); a = a.Next() {
		slots <- struct{}{}
		go func() {
			if c, err := net.DialTimeout("tcp", netip.AddrPortFrom(a, 80).String(), 100*time.Millisecond); err == nil {
				c.Close()
			}
			<-slots
		}()
	}
	for range cap(slots) { // the last ones
		slots <- struct{}{}
	}
	return nil
}
