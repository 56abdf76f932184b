package relay

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// retell is when the twin is told the MTU of a path again: its kernel forgets what
// it was told after ten minutes (net.ipv4.route.mtu_expires).
const retell = time.Minute

// path is what a datagram flow knows of its way, and has told the twin. It belongs
// to the side that sends.
type path struct {
	six   bool
	limit int // MTU of the link: no datagram that fits it was cut by the twin

	ttl  int // last set; 0: the host's default
	mtu  int // last told
	when time.Time
}

// lives gives the next datagram the time to live that it has in the twin.
func (p *path) lives(c *net.UDPConn, ttl byte) error {
	if p.ttl == int(ttl) || ttl == 0 {
		return nil
	}
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	level, option := unix.SOL_IP, unix.IP_TTL
	if p.six {
		level, option = unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS
	}
	cerr := rc.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, int(ttl)) })
	if cerr != nil {
		err = cerr
	}
	if err == nil {
		p.ttl = int(ttl)
	}
	return err
}

// narrow returns the MTU of the path when a datagram of n bytes is larger and the
// twin has not been told lately. The host cuts such a datagram, so nothing is lost;
// an application that probes for the size, or asks its socket for it, must know.
func (p *path) narrow(c *net.UDPConn, n int) (mtu int, tell bool) {
	const smallest = 552 // net.ipv4.route.min_pmtu
	n += headers(p.six)
	if n <= smallest || n > p.limit {
		return 0, false
	}
	rc, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	mtu, err = pathMTU(rc, p.six)
	if err != nil || n <= mtu {
		return 0, false
	}
	if mtu == p.mtu && time.Since(p.when) < retell {
		return 0, false
	}
	p.mtu, p.when = mtu, time.Now()
	return mtu, true
}
