package nettwin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/versus"
)

// BenchmarkTwin carries bytes both ways over one flow and over ten, and makes
// connections one after the other: from the host itself, through the twin, and
// through slirp4netns at the same MTU. Client, server and what is in between share
// the machine. Hashes of every stream are compared.
func BenchmarkTwin(b *testing.B) {
	l := newLab(b, nstest.Tool("slirp4netns"))
	bulk(b, l.server)
	l.mirror(b, Options{})
	slirp, pid := l.slirp(b)
	from := []struct {
		name string
		node *netlab.Node
		cpu  int // the process in between
	}{{"direct", l.host, 0}, {"twin", l.inside, l.twin.Status().Relay}, {"slirp", slirp, pid}}
	var s versus.Series
	for b.Loop() {
		for _, flows := range []int{1, 10} {
			for _, dir := range []byte{down, up} {
				for _, f := range from {
					size := 100 << 20
					if f.name == "direct" {
						size *= 2
					}
					before := cpu(b, f.cpu)
					took := transfer(b, f.node, dir, flows, size)
					what := fmt.Sprintf("%s-%c%d", f.name, dir, flows)
					s.Add(what+"-MB/s", float64(size)/1e6/took.Seconds())
					if f.cpu != 0 {
						s.Add(what+"-s/GB", (cpu(b, f.cpu)-before).Seconds()/float64(size)*1e9)
					}
				}
			}
		}
		for _, f := range from {
			for range 100 {
				s.Time(f.name+"-connect", func() {
					c, err := f.node.Dial(b.Context(), "tcp", "203.0.113.80:95")
					must(b, err)
					c.Close()
				})
			}
		}
	}
	s.Report(b, "twin-connect/direct-connect",
		"twin-d1-MB/s÷slirp-d1-MB/s", "twin-u1-MB/s÷slirp-u1-MB/s", "twin-d10-MB/s÷slirp-d10-MB/s", "twin-u10-MB/s÷slirp-u10-MB/s")
	b.ReportMetric(s.Median("twin-connect-ms")-s.Median("direct-connect-ms"), "connect-extra-ms")
}

// slirp is a namespace behind slirp4netns on the lab's host.
func (l *testLab) slirp(b *testing.B) (*netlab.Node, int) {
	n, err := l.Node("slirp")
	must(b, err)
	cmd := exec.Command("slirp4netns", "--configure", "--mtu=1500", "--netns-type=path",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.NS().Fd()), "tap0")
	must(b, l.host.Start(cmd))
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := n.Dial(b.Context(), "tcp", "203.0.113.80:95")
		if err == nil {
			c.Close()
			return n, cmd.Process.Pid
		}
		if time.Now().After(end) {
			b.Fatalf("slirp4netns does not connect: %v", err)
		}
	}
}

// The first byte of a stream says which way it goes; eight with its size follow.
const (
	down = 'd'
	up   = 'u'
)

var (
	seed = maphash.MakeSeed()
	blob = func() []byte {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = byte(i ^ i>>8*31 ^ i>>16*7)
		}
		return b
	}()
)

// bulk serves streams; both ends know each other's hash, for they are one process.
func bulk(b *testing.B, n *netlab.Node) {
	ln, err := n.Listen("tcp", ":95")
	must(b, err)
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var head [9]byte
				if _, err := io.ReadFull(c, head[:]); err != nil {
					return // a mere connection
				}
				size := int(binary.BigEndian.Uint64(head[1:]))
				var sum uint64
				var err error
				if head[0] == down {
					sum, err = send(c, size)
				} else {
					sum, err = receive(c, size)
				}
				if err == nil {
					var tail [8]byte
					binary.BigEndian.PutUint64(tail[:], sum)
					c.Write(tail[:])
				}
			}()
		}
	}()
}

// transfer moves size bytes over some flows at once.
func transfer(b *testing.B, n *netlab.Node, dir byte, flows, size int) time.Duration {
	b.Helper()
	var wg sync.WaitGroup
	errs := make([]error, flows)
	begun := time.Now()
	for i := range flows {
		wg.Go(func() { errs[i] = flow(b, n, dir, size/flows) })
	}
	wg.Wait()
	took := time.Since(begun)
	must(b, errors.Join(errs...))
	return took
}

func flow(b *testing.B, n *netlab.Node, dir byte, size int) error {
	c, err := n.Dial(b.Context(), "tcp", "203.0.113.80:95")
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	head := binary.BigEndian.AppendUint64([]byte{dir}, uint64(size))
	if _, err := c.Write(head); err != nil {
		return err
	}
	var sum uint64
	if dir == down {
		sum, err = receive(c, size)
	} else {
		sum, err = send(c, size)
	}
	if err != nil {
		return err
	}
	var tail [8]byte
	if _, err := io.ReadFull(c, tail[:]); err != nil {
		return err
	}
	if binary.BigEndian.Uint64(tail[:]) != sum {
		return errors.New("what arrived is not what was sent")
	}
	return nil
}

// send and receive use 256 KiB at a time and return the hash of the stream.
func send(c net.Conn, size int) (uint64, error) {
	var h maphash.Hash
	h.SetSeed(seed)
	for done := 0; done < size; {
		at := done * 7 % (len(blob) - 256<<10)
		part := blob[at : at+min(256<<10, size-done)]
		h.Write(part)
		n, err := c.Write(part)
		if err != nil {
			return 0, err
		}
		done += n
	}
	return h.Sum64(), nil
}

func receive(c net.Conn, size int) (uint64, error) {
	var h maphash.Hash
	h.SetSeed(seed)
	buf := make([]byte, 256<<10)
	for done := 0; done < size; {
		n, err := c.Read(buf[:min(len(buf), size-done)])
		h.Write(buf[:n])
		done += n
		if err != nil {
			return 0, err
		}
	}
	return h.Sum64(), nil
}

// cpu is the processor time of a process, the steadiest figure on a busy machine.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(b, err)
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, i := range []int{11, 12} { // utime, stime in clock ticks of 10 ms, see proc_pid_stat(5)
		n, err := strconv.Atoi(f[i])
		must(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
