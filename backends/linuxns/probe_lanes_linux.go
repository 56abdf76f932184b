package linuxns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	rtnetlink "github.com/vishvananda/netlink"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// laneless says what there is without lanes.
const laneless = "; without it a circuit that a change sends by a way that the host does not use itself is Unverifiable"

// tryLane makes a lane of each family in a namespace of its own and lets a flow in
// by it.
func tryLane(context.Context, string) (_ string, err error) {
	if err := ownNet(); err != nil {
		return "", err
	}
	lo, err := rtnetlink.LinkByName("lo")
	if err != nil {
		return "", fmt.Errorf("find lo: %w", err)
	}
	if err := rtnetlink.LinkSetUp(lo); err != nil {
		return "", fmt.Errorf("set lo up: %w", err)
	}
	ns, err := netns.Current()
	if err != nil {
		return "", err
	}
	defer ns.Close()
	l, err := lanes.Open(ns, lanes.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, ends := range [][2]string{{"192.0.2.1:1024", "198.51.100.1:80"}, {"[2001:db8::1]:1024", "[2001:db8::2]:80"}} {
		src, dst := netip.MustParseAddrPort(ends[0]), netip.MustParseAddrPort(ends[1])
		by := way.Lane{Index: lo.Attrs().Index, Six: dst.Addr().Is6()}
		if _, err := l.Lane(by); err != nil {
			return "", fmt.Errorf("make a lane: %w", err)
		}
		f := way.Flow{Proto: unix.IPPROTO_TCP, Src: src, Dst: dst, Lane: by}
		if err := l.Admit(f); err != nil {
			return "", fmt.Errorf("let a flow in: %w", err)
		}
		l.Release(f)
	}
	return "rules by mark and by flow, both families", nil
}

// tryMark marks a socket with no more rights than the process that carries a twin's
// traffic has. The calling thread ends soon.
func tryMark(context.Context, string) (string, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: 1 << unix.CAP_NET_RAW, Permitted: 1 << unix.CAP_NET_RAW}}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return "", fmt.Errorf("drop capabilities: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 0x5b000000); err != nil {
		return "", fmt.Errorf("mark a socket with CAP_NET_RAW alone: %w", err)
	}
	return "set with CAP_NET_RAW alone", nil
}
