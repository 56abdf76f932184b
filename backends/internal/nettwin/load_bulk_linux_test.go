package nettwin

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
)

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
func bulk(t testing.TB, n *netlab.Node) {
	ln, err := n.Listen("tcp", ":95")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
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
func transfer(t testing.TB, n *netlab.Node, addr string, dir byte, flows, size int) time.Duration {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, flows)
	begun := time.Now()
	for i := range flows {
		wg.Go(func() { errs[i] = flow(t.Context(), n, addr, dir, size/flows) })
	}
	wg.Wait()
	took := time.Since(begun)
	must(t, errors.Join(errs...))
	return took
}

func flow(ctx context.Context, n *netlab.Node, addr string, dir byte, size int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c, err := n.Dial(ctx, "tcp", addr)
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
