package relay

import (
	"fmt"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// pathMTU is the size of the largest packet, headers and all, that the kernel
// knows to fit through the path of a connected socket.
func pathMTU(rc syscall.RawConn, six bool) (mtu int, err error) {
	level, option := unix.SOL_IP, unix.IP_MTU
	if six {
		level, option = unix.SOL_IPV6, unix.IPV6_MTU
	}
	cerr := rc.Control(func(fd uintptr) { mtu, err = unix.GetsockoptInt(int(fd), level, option) })
	if cerr != nil {
		err = cerr
	}
	if err != nil {
		return 0, fmt.Errorf("read path mtu: %w", err)
	}
	return mtu, nil
}

// setDF says whether packets of an IPv4 socket may be cut, here or on the way. When
// not, one that does not fit is EMSGSIZE.
func setDF(fd int, on bool) error {
	v := unix.IP_PMTUDISC_DONT
	if on {
		v = unix.IP_PMTUDISC_DO
	}
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_MTU_DISCOVER, v)
}

// zone is the number of the interface in a scoped address, or 0.
func zone(a netip.Addr) int {
	n, _ := strconv.Atoi(a.Zone())
	return n
}
