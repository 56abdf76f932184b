package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/userns"
)

// Conn is a NETLINK_ROUTE socket in one network namespace.
type Conn struct{ c *netlink.Conn }

// Dial opens a socket in the namespace ns.
func Dial(ns int) (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: ns})
	if err != nil {
		return nil, fmt.Errorf("dial rtnetlink: %w", err)
	}
	return &Conn{c}, nil
}

// Open opens a socket in the namespace of the calling thread.
func Open() (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("dial rtnetlink: %w", err)
	}
	return &Conn{c}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.c.Close() }

// Dump returns the payload of every message that answers a dump request.
// header is the fixed header of the family (ifinfomsg, rtmsg, …).
func (c *Conn) Dump(typ uint16, header []byte) ([][]byte, error) {
	// A dump over a table that changes meanwhile is marked, not repeated, by the
	// kernel (NLM_F_DUMP_INTR).
	for range 8 {
		ms, err := c.c.Execute(netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(typ), Flags: netlink.Request | netlink.Dump},
			Data:   header,
		})
		if err != nil {
			return nil, fmt.Errorf("dump rtnetlink type %d: %w", typ, err)
		}
		out, torn := make([][]byte, 0, len(ms)), false
		for _, m := range ms {
			torn = torn || m.Header.Flags&netlink.DumpInterrupted != 0
			if len(m.Data) >= len(header) {
				out = append(out, m.Data)
			}
		}
		if !torn {
			return out, nil
		}
	}
	return nil, fmt.Errorf("dump rtnetlink type %d: %w", typ, unix.EAGAIN)
}

// Get sends one request that has one answer.
func (c *Conn) Get(typ uint16, msg []byte) ([]byte, error) {
	ms, err := c.c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(typ), Flags: netlink.Request},
		Data:   msg,
	})
	if err != nil {
		return nil, errno(err)
	}
	if len(ms) == 0 {
		return nil, unix.ENODATA
	}
	return ms[0].Data, nil
}

// Do sends one request and waits for its acknowledgement. The error is the
// kernel's bare [unix.Errno] where there is one.
func (c *Conn) Do(typ uint16, flags int, msg []byte) error {
	return c.Batch(typ, flags, [][]byte{msg})[0]
}

// DoAs is [Conn.Do] as root of the user namespace that owns the network namespace,
// for what the kernel takes from nobody else. Nil: the caller is that.
func (c *Conn) DoAs(owner *os.File, typ uint16, flags int, msg []byte) error {
	if owner == nil {
		return c.Do(typ, flags, msg)
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(msg)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags))
	b = append(append(b, make([]byte, 8)...), msg...) // no sequence, no port
	rc, err := c.c.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := errors.Join(rc.Control(func(fd uintptr) { sent = userns.Send(owner, int(fd), b) }), sent); err != nil {
		return errno(err)
	}
	_, err = c.c.Receive()
	return errno(err)
}

// Batch sends many requests of one type, packed, and returns the answer to
// each: 10 000 routes one by one cost a system call pair each.
func (c *Conn) Batch(typ uint16, flags int, msgs [][]byte) []error {
	const packed = 64 // acknowledgements of one send must fit the receive buffer
	errs := make([]error, 0, len(msgs))
	for len(msgs) > 0 {
		n := min(packed, len(msgs))
		errs = append(errs, c.batch(typ, flags, msgs[:n])...)
		msgs = msgs[n:]
	}
	return errs
}

func (c *Conn) batch(typ uint16, flags int, msgs [][]byte) []error {
	errs := make([]error, len(msgs))
	ms := make([]netlink.Message, len(msgs))
	for i, m := range msgs {
		ms[i] = netlink.Message{
			Header: netlink.Header{
				Type:  netlink.HeaderType(typ),
				Flags: netlink.Request | netlink.Acknowledge | netlink.HeaderFlags(flags),
			},
			Data: m,
		}
	}
	if _, err := c.c.SendMessages(ms); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	for i := range errs { // acknowledgements come one by one, in order
		_, err := c.c.Receive()
		errs[i] = errno(err)
	}
	return errs
}

func errno(err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}
