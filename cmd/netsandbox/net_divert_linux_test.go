package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// labDivert is a transparent proxy, as a host's nat redirects to it: it asks the
// kernel where a stream was going, goes there, and keeps a record: `lab divert
// ADDR FILE`. The rule must spare its own connections, by their owner.
func labDivert(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: lab divert ADDR FILE")
	}
	record, err := os.OpenFile(args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp4", args[0])
	if err != nil {
		return err
	}
	return eachConn(ln, func(c net.Conn) {
		dst, err := originalDst(c.(*net.TCPConn))
		if err != nil || dst.String() == args[0] { // nobody redirected it
			return
		}
		fmt.Fprintln(record, dst)
		out, err := net.DialTimeout("tcp4", dst.String(), patience)
		if err != nil {
			return
		}
		defer out.Close()
		splice(c.(*net.TCPConn), out.(*net.TCPConn))
	})
}

// splice copies both ways until both have ended.
func splice(a, b interface {
	io.ReadWriter
	CloseWrite() error
},
) {
	var wg sync.WaitGroup
	wg.Go(func() {
		io.Copy(a, b)
		a.CloseWrite()
	})
	io.Copy(b, a)
	b.CloseWrite()
	wg.Wait()
}

// originalDst reads SO_ORIGINAL_DST: a struct sockaddr_in, for which the library
// has no type of its own.
func originalDst(c *net.TCPConn) (dst netip.AddrPort, err error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return dst, err
	}
	cerr := rc.Control(func(fd uintptr) {
		var raw *unix.IPv6Mreq
		if raw, err = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); err == nil {
			b := raw.Multiaddr
			dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4]))
		}
	})
	return dst, errors.Join(cerr, err)
}
