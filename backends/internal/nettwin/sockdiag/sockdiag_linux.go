package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// Conn is a NETLINK_SOCK_DIAG socket.
type Conn struct{ c *netlink.Conn }

// Dial opens one in the namespace ns.
func Dial(ns int) (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{NetNS: ns})
	if err != nil {
		return nil, fmt.Errorf("dial sock_diag: %w", err)
	}
	return &Conn{c}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.c.Close() }

// Socket is one that takes what comes to an address.
type Socket struct {
	Proto uint8          // IPPROTO_TCP or IPPROTO_UDP
	Addr  netip.AddrPort // unspecified when it takes every address
	// Only6 is set on an IPv6 socket that takes no IPv4.
	Only6 bool
}

// Takes reports whether the socket takes what is sent to an address.
func (s Socket) Takes(to netip.AddrPort) bool {
	if s.Addr.Port() != to.Port() {
		return false
	}
	a := s.Addr.Addr()
	if a.IsUnspecified() {
		return a.Is4() == to.Addr().Is4() || a.Is6() && !s.Only6
	}
	return a.Unmap() == to.Addr()
}

// Sizes and numbers of the kernel's inet_diag.h, which x/sys lacks.
const (
	byFamily   = 20 // SOCK_DIAG_BY_FAMILY
	sizeofReq  = 56 // struct inet_diag_req_v2
	sizeofMsg  = 72 // struct inet_diag_msg
	attrV6Only = 11 // INET_DIAG_SKV6ONLY
	tcpListen  = 1 << 10
	udpUnconnd = 1 << 7 // a datagram socket without a peer is in state CLOSE
	everyState = 1<<32 - 1

	idPorts  = 8  // in the request: struct inet_diag_sockid, source port first
	idAddrs  = 12 // source address first, each 16 bytes
	idCookie = 48
)

// Listening lists every TCP socket that listens and every UDP socket that is
// bound and takes datagrams from anybody.
func (c *Conn) Listening() ([]Socket, error) {
	var out []Socket
	for _, q := range []struct {
		proto  uint8
		states uint32
	}{{unix.IPPROTO_TCP, tcpListen}, {unix.IPPROTO_UDP, udpUnconnd}} {
		for _, af := range []uint8{unix.AF_INET, unix.AF_INET6} {
			req := make([]byte, sizeofReq)
			req[0], req[1] = af, q.proto
			binary.NativeEndian.PutUint32(req[4:], q.states)
			ms, err := c.c.Execute(netlink.Message{
				Header: netlink.Header{Type: byFamily, Flags: netlink.Request | netlink.Dump},
				Data:   req,
			})
			if err != nil {
				return nil, fmt.Errorf("list sockets: %w", err)
			}
			for _, m := range ms {
				if len(m.Data) >= sizeofMsg {
					out = append(out, parse(q.proto, m.Data))
				}
			}
		}
	}
	return out, nil
}

// Has reports whether there is a socket at one end of a flow: bound to at and
// connected to peer.
func (c *Conn) Has(proto uint8, at, peer netip.AddrPort) (bool, error) {
	req := make([]byte, sizeofReq)
	req[0], req[1] = unix.AF_INET, proto
	if at.Addr().Is6() {
		req[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(req[4:], everyState)
	binary.BigEndian.PutUint16(req[idPorts:], at.Port())
	binary.BigEndian.PutUint16(req[idPorts+2:], peer.Port())
	copy(req[idAddrs:], at.Addr().AsSlice())
	copy(req[idAddrs+16:], peer.Addr().AsSlice())
	for i := range 8 { // INET_DIAG_NOCOOKIE
		req[idCookie+i] = 0xff
	}
	ms, err := c.c.Execute(netlink.Message{Header: netlink.Header{Type: byFamily, Flags: netlink.Request}, Data: req})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for socket: %w", err)
	}
	for _, m := range ms {
		// The kernel falls back to a socket that listens.
		if len(m.Data) >= sizeofMsg && binary.BigEndian.Uint16(m.Data[6:]) == peer.Port() {
			return true, nil
		}
	}
	return false, nil
}

func parse(proto uint8, m []byte) Socket {
	s := Socket{Proto: proto}
	port := binary.BigEndian.Uint16(m[4:])
	if m[0] == unix.AF_INET {
		s.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte(m[8:12])), port)
		return s
	}
	s.Addr = netip.AddrPortFrom(netip.AddrFrom16([16]byte(m[8:24])), port)
	if v := rtnl.Find(m[sizeofMsg:], attrV6Only); len(v) > 0 {
		s.Only6 = v[0] != 0
	}
	return s
}
