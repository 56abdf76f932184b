package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/tun"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// labFakeIP is a proxy of the kind that owns a tun: its name server gives out
// addresses that do not exist, and streams to them come up here and go on to
// where the name really is: `lab fakeip tun0 203.0.113.80 7777`. The port stays. Its
// own streams carry a mark, for rules that lead all others into the tun.
func labFakeIP(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: lab fakeip TUN TARGET MARK")
	}
	mark, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	dialer := &net.Dialer{Timeout: patience, Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		return cmp.Or(rc.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) }), err)
	}}
	fd, err := tun.Open(args[0])
	if err != nil {
		return fmt.Errorf("open %s: %w", args[0], err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	link, err := fdbased.New(&fdbased.Options{FDs: []int{fd}, MTU: 1500})
	if err != nil {
		return err
	}
	const nic = 1
	if err := s.CreateNIC(nic, link); err != nil {
		return errors.New(err.String())
	}
	s.SetPromiscuousMode(nic, true)
	s.SetSpoofing(nic, true)
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	f := tcp.NewForwarder(s, 0, 64, func(r *tcp.ForwarderRequest) {
		out, err := dialer.Dial("tcp4", net.JoinHostPort(args[1], fmt.Sprint(r.ID().LocalPort)))
		if err != nil {
			r.Complete(true)
			return
		}
		defer out.Close()
		var q waiter.Queue
		ep, terr := r.CreateEndpoint(&q)
		r.Complete(terr != nil)
		if terr != nil {
			return
		}
		in := gonet.NewTCPConn(&q, ep)
		defer in.Close()
		splice(in, out.(*net.TCPConn))
	})
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, f.HandlePacket)
	select {}
}
