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

// Translated says where nat sends what src sends to dst; dst itself when there is
// no translation.
func (c *Conn) Translated(proto uint8, src, dst netip.AddrPort) (netip.AddrPort, error) {
	return c.far(proto, src, dst, ctaTupleOrig, ctaTupleReply, tupleSrc)
}

// Original says what destination src gave to what arrived at dst.
func (c *Conn) Original(proto uint8, src, dst netip.AddrPort) (netip.AddrPort, error) {
	return c.far(proto, dst, src, ctaTupleReply, ctaTupleOrig, tupleDst)
}

// Attributes of the kernel's nfnetlink_conntrack.h, which x/sys lacks, and the
// one message that is used.
const (
	getEntry      = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaV4Src      = 1 // then V4_DST, V6_SRC, V6_DST
	ctaProtoNum   = 1
	ctaProtoSrc   = 2
	ctaProtoDst   = 3
	headerSize    = 4 // struct nfgenmsg
)

// Ends of a tuple: offsets from the attribute of the source to this one's.
const (
	tupleSrc = 0
	tupleDst = 1
)

// answerTime bounds the wait for the kernel.
const answerTime = 2 * time.Second

// far finds the entry with one tuple and returns an end of the other.
func (c *Conn) far(proto uint8, src, dst netip.AddrPort, known, wanted, end uint16) (netip.AddrPort, error) {
	m, err := request(proto, src, dst, known)
	if err != nil {
		return netip.AddrPort{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask conntrack: %w", err)
	}
	ms, err := c.c.Execute(m)
	if errors.Is(err, unix.ENOENT) {
		return netip.AddrPort{}, ErrUntracked
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask conntrack: %w", err)
	}
	if len(ms) == 0 || len(ms[0].Data) < headerSize {
		return netip.AddrPort{}, fmt.Errorf("ask conntrack: %w", unix.EBADMSG)
	}
	return tupleEnd(rtnl.Find(ms[0].Data[headerSize:], wanted), end)
}

func request(proto uint8, src, dst netip.AddrPort, tuple uint16) (netlink.Message, error) {
	family, first := byte(unix.AF_INET), uint16(ctaV4Src)
	if dst.Addr().Is6() {
		family, first = unix.AF_INET6, ctaV4Src+2
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
			p.Uint16(ctaProtoSrc, src.Port())
			p.Uint16(ctaProtoDst, dst.Port())
			return nil
		})
		return nil
	})
	b, err := ae.Encode()
	if err != nil {
		return netlink.Message{}, fmt.Errorf("encode tuple: %w", err)
	}
	return netlink.Message{
		Header: netlink.Header{Type: getEntry, Flags: netlink.Request | netlink.Acknowledge},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, b...),
	}, nil
}

func tupleEnd(tuple []byte, end uint16) (netip.AddrPort, error) {
	ip, proto := rtnl.Find(tuple, ctaTupleIP), rtnl.Find(tuple, ctaTupleProto)
	b := rtnl.Find(ip, ctaV4Src+end)
	if b == nil {
		b = rtnl.Find(ip, ctaV4Src+2+end)
	}
	a, ok := netip.AddrFromSlice(b)
	port := rtnl.Find(proto, ctaProtoSrc+end)
	if !ok || len(port) != 2 {
		return netip.AddrPort{}, fmt.Errorf("read tuple: %w", unix.EBADMSG)
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port)), nil
}
