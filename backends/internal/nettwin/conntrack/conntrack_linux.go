package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// ErrUntracked is returned for a flow that the kernel does not know: nothing
// that it does to addresses concerns it.
var ErrUntracked = errors.New("flow is not tracked")

// Conn is a NETLINK_NETFILTER socket. It may be used from several goroutines.
type Conn struct {
	mu sync.Mutex
	c  *netlink.Conn
}

// Dial opens one in the namespace ns.
func Dial(ns int) (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns})
	if err != nil {
		return nil, fmt.Errorf("dial conntrack: %w", err)
	}
	return &Conn{c: c}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.c.Close() }

// Translated says what nat makes of what src sends to dst: the ends of it as who
// gets it sees them; src and dst themselves when there is no translation. Of an echo
// request the port of src is the identifier, and what is returned has none.
func (c *Conn) Translated(proto uint8, src, dst netip.AddrPort) (from, to netip.AddrPort, err error) {
	to, from, err = c.other(proto, src, dst, ctaTupleOrig, ctaTupleReply)
	return from, to, err
}

// Original says what destination src gave to what arrived at dst.
func (c *Conn) Original(proto uint8, src, dst netip.AddrPort) (netip.AddrPort, error) {
	_, to, err := c.other(proto, dst, src, ctaTupleReply, ctaTupleOrig)
	return to, err
}

// Attributes of the kernel's nfnetlink_conntrack.h, which x/sys lacks, and the
// one message that is used.
const (
	getEntry      = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaV4Src      = 1 // the destination's is the next, here and below
	ctaV6Src      = 3
	ctaProtoNum   = 1
	ctaProtoSrc   = 2
	ctaICMPID     = 4 // then type and code
	ctaICMPv6ID   = 7
	headerSize    = 4 // struct nfgenmsg
)

// answerTime bounds the wait for the kernel.
const answerTime = 2 * time.Second

// other finds the entry with one tuple and returns the ends of the other.
func (c *Conn) other(proto uint8, src, dst netip.AddrPort, known, wanted uint16) (from, to netip.AddrPort, err error) {
	m, err := request(proto, src, dst, known)
	if err != nil {
		return from, to, err
	}
	ms, err := c.execute(m)
	if errors.Is(err, unix.ENOENT) {
		return from, to, ErrUntracked
	}
	if err == nil && (len(ms) == 0 || len(ms[0].Data) < headerSize) {
		err = unix.EBADMSG
	}
	if err == nil {
		from, to, err = ends(rtnl.Find(ms[0].Data[headerSize:], wanted))
	}
	if err != nil {
		return from, to, fmt.Errorf("ask conntrack: %w", err)
	}
	return from, to, nil
}

// execute asks for an acknowledgement, too: the single answer claims to be one of
// many (6.18), and who waits for the last waits for ever.
func (c *Conn) execute(m netlink.Message) ([]netlink.Message, error) {
	m.Header.Flags |= netlink.Request | netlink.Acknowledge
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, err
	}
	return c.c.Execute(m)
}

func request(proto uint8, src, dst netip.AddrPort, tuple uint16) (netlink.Message, error) {
	family, first := byte(unix.AF_INET), uint16(ctaV4Src)
	if dst.Addr().Is6() {
		family, first = unix.AF_INET6, ctaV6Src
	}
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	ae.Nested(tuple, func(t *netlink.AttributeEncoder) error {
		t.Nested(ctaTupleIP, func(ip *netlink.AttributeEncoder) error {
			ip.Bytes(first, src.Addr().AsSlice())
			ip.Bytes(first+1, dst.Addr().AsSlice())
			return nil
		})
		t.Nested(ctaTupleProto, func(p *netlink.AttributeEncoder) error {
			p.Uint8(ctaProtoNum, proto)
			switch proto {
			case unix.IPPROTO_ICMP:
				echo(p, ctaICMPID, src.Port(), 8)
			case unix.IPPROTO_ICMPV6:
				echo(p, ctaICMPv6ID, src.Port(), 128)
			default:
				p.Uint16(ctaProtoSrc, src.Port())
				p.Uint16(ctaProtoSrc+1, dst.Port())
			}
			return nil
		})
		return nil
	})
	b, err := ae.Encode()
	if err != nil {
		return netlink.Message{}, fmt.Errorf("encode tuple: %w", err)
	}
	return netlink.Message{
		Header: netlink.Header{Type: getEntry},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, b...),
	}, nil
}

// echo names an echo request.
func echo(p *netlink.AttributeEncoder, at, id uint16, typ uint8) {
	p.Uint16(at, id)
	p.Uint8(at+1, typ)
	p.Uint8(at+2, 0)
}

// ends reads a tuple.
func ends(tuple []byte) (src, dst netip.AddrPort, err error) {
	ip, proto := rtnl.Find(tuple, ctaTupleIP), rtnl.Find(tuple, ctaTupleProto)
	end := func(at uint16) (netip.AddrPort, bool) {
		b := rtnl.Find(ip, ctaV4Src+at)
		if b == nil {
			b = rtnl.Find(ip, ctaV6Src+at)
		}
		a, ok := netip.AddrFromSlice(b)
		port := rtnl.Find(proto, ctaProtoSrc+at)
		if n := rtnl.Find(proto, ctaProtoNum); len(n) == 1 && (n[0] == unix.IPPROTO_ICMP || n[0] == unix.IPPROTO_ICMPV6) {
			port = []byte{0, 0}
		}
		if !ok || len(port) != 2 {
			return netip.AddrPort{}, false
		}
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port)), true
	}
	src, ok := end(0)
	dst, ok2 := end(1)
	if !ok || !ok2 {
		return src, dst, fmt.Errorf("read tuple: %w", unix.EBADMSG)
	}
	return src, dst, nil
}
