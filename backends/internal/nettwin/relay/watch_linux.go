package relay

import (
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// watch counts how often something of a lane was removed from the host. Who asks the
// kernel before and after a handshake does not see what was removed and made again
// in between; what was sent meanwhile went by the host's own way.
type watch struct {
	mu      sync.Mutex
	fd      int
	removed map[uint32]uint64 // by the number of the lane: its mark, its table
	missed  uint64            // times that the kernel had more to tell than the socket holds
	in      [16 << 10]byte
}

// maxWatched bounds the numbers that are remembered. Numbers of other environments
// are among them.
const maxWatched = 1 << 14

// openWatch listens for removed rules and routes of the host.
func openWatch() (*watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	for _, group := range []int{unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
			return nil, fmt.Errorf("listen for changes of the host: %w", err)
		}
	}
	return &watch{fd: fd, removed: map[uint32]uint64{}}, nil
}

// count is how often something of the lane with a number was removed until now. The
// kernel tells of a change before whoever made it goes on, so nothing is late.
func (w *watch) count(number uint32) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		n, err := again(func() (int, error) { return unix.Read(w.fd, w.in[:]) })
		switch {
		case err == unix.ENOBUFS:
			w.missed++
		case err != nil:
			return w.removed[number] + w.missed
		default:
			w.hear(w.in[:n])
		}
	}
}

func (w *watch) hear(b []byte) {
	for len(b) >= unix.NLMSG_HDRLEN {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			return
		}
		if number := numberOf(binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:n]); number != 0 {
			if len(w.removed) >= maxWatched {
				clear(w.removed)
				w.missed++
			}
			w.removed[number]++
		}
		b = b[min((n+3)&^3, len(b)):]
	}
}

// numberOf is the number of the lane that a removed rule or route may be of; 0: none.
// Rules without a mark are those of single flows, which come and go.
func numberOf(typ uint16, m []byte) uint32 {
	table, mark := uint16(unix.RTA_TABLE), true
	switch {
	case typ == unix.RTM_DELRULE && len(m) >= rtnl.SizeofRuleHdr:
		table = unix.FRA_TABLE
		m = m[rtnl.SizeofRuleHdr:]
		mark = rtnl.Find(m, unix.FRA_FWMARK) != nil
	case typ == unix.RTM_DELROUTE && len(m) >= unix.SizeofRtMsg:
		m = m[unix.SizeofRtMsg:]
	default:
		return 0
	}
	if v := rtnl.Find(m, table); mark && len(v) == 4 {
		return binary.NativeEndian.Uint32(v)
	}
	return 0
}
