package nettwin

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// from connects inside from a fixed port and returns all that comes.
func (l *testLab) from(port uint16, addr string) (string, error) {
	to := netip.MustParseAddrPort(addr)
	d := net.Dialer{
		Timeout: 3 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(to.Addr(), port)),
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			if cerr != nil {
				return cerr
			}
			return err
		},
	}
	var c net.Conn
	err := l.inside.Do(func() (err error) {
		c, err = d.Dial("tcp", addr)
		return err
	})
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(3 * time.Second))
	b, err := io.ReadAll(c)
	return string(b), err
}

// TestPortsOfClientsComeAgain has the service close first, so that the end which
// the relay accepted waits (TIME_WAIT) while the client, which does not, connects
// again from the same port. A listening socket takes that, and so must the relay.
func TestPortsOfClientsComeAgain(t *testing.T) {
	l := newLab(t, nstest.NFT)
	for _, addr := range []string{"127.0.0.1:7890", "[::1]:7890"} {
		greet(t, l.host, addr, "host")
	}
	l.mirror(t, Options{Relay: []uint16{7890}})
	// Otherwise the client's reset of an answer that it does not expect would end
	// the wait, and its second attempt succeed.
	must(t, l.inside.Sysctl("ipv4/tcp_rfc1337", "1"))
	for _, addr := range []string{"127.0.0.1:7890", "[::1]:7890"} {
		for i := range 20 {
			start := time.Now()
			got, err := l.from(20001, addr)
			if took := time.Since(start); got != "host" || err != nil || took > 500*time.Millisecond {
				t.Fatalf("%s, %d. time: got %q, %v after %v", addr, i+1, got, err, took)
			}
		}
	}
}
