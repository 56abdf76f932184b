package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/userns"
)

// Conn is a NETLINK_ROUTE socket in one network namespace.
type Conn struct{ c *netlink.Conn }

// Dial opens a socket in the namespace ns.
func Dial(ns int) (*Conn, error) { return dial(&netlink.Config{NetNS: ns}) }

// Open opens a socket in the namespace of the calling thread.
func Open() (*Conn, error) { return dial(nil) }

// DialStrict is [Dial] for a socket that asks for strict checking (Linux 4.20): the
// kernel then filters dumps, and a host with a full routing table is not read to
// find two routes.
func DialStrict(ns int) (*Conn, error) { return dial(&netlink.Config{NetNS: ns, Strict: true}) }

func dial(how *netlink.Config) (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, how)
	if err != nil {
		return nil, fmt.Errorf("dial rtnetlink: %w", err)
	}
	return &Conn{c}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.c.Close() }

// NoFamily reports that the kernel was built, or started, without a family (IPv6)
// or a kind of object: nexthop objects came with 5.3.
func NoFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

// Dump returns the payload of every message that answers a dump request. header is
// the fixed header of the family (ifinfomsg, rtmsg, …), and attrs may follow it. Of
// what the kernel lacks, or of a table that is not there, there is nothing.
func (c *Conn) Dump(typ uint16, header []byte, attrs ...byte) ([][]byte, error) {
	// A dump over a table that changes meanwhile is marked, not repeated, by the
	// kernel (NLM_F_DUMP_INTR).
	for range 8 {
		ms, err := c.c.Execute(netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(typ), Flags: netlink.Request | netlink.Dump},
			Data:   slices.Concat(header, attrs),
		})
		if NoFamily(err) || errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("dump rtnetlink type %d: %w", typ, err)
		}
		out, torn := make([][]byte, 0, len(ms)), false
		for _, m := range ms {
			torn = torn || m.Header.Flags&netlink.DumpInterrupted != 0
			if len(m.Data) >= len(header) && asked(m.Data, header) {
				out = append(out, m.Data)
			}
		}
		if !torn {
			return out, nil
		}
	}
	return nil, fmt.Errorf("dump rtnetlink type %d: %w", typ, unix.EAGAIN)
}

// asked reports whether an answer is of the family that was asked for. A kernel
// without IPv6 answers to a dump of its routes with those of all families.
func asked(msg, header []byte) bool {
	return len(header) == 0 || header[0] == unix.AF_UNSPEC || header[0] == msg[0]
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

// Request sends one request and waits for its acknowledgement, as [Conn.Do] does,
// and keeps what the kernel says of a refusal ([netlink.OpError]).
func (c *Conn) Request(typ uint16, flags int, msg []byte) error {
	_, err := c.c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(typ), Flags: netlink.Request | netlink.Acknowledge | netlink.HeaderFlags(flags)},
		Data:   msg,
	})
	return err
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
	const packed = 128 // refusals of one send must fit the receive buffer
	errs := make([]error, len(msgs))
	for at := 0; at < len(msgs); at += packed {
		end := min(at+packed, len(msgs))
		if err := c.batch(typ, flags, msgs[at:end], errs[at:end]); err != nil {
			for i := at; i < len(errs); i++ {
				errs[i] = err
			}
			break
		}
	}
	return errs
}

// batch asks for one acknowledgement, that of the last request: the kernel
// reports what it refuses unasked, and before it.
func (c *Conn) batch(typ uint16, flags int, msgs [][]byte, errs []error) error {
	ms := make([]netlink.Message, len(msgs))
	for i, m := range msgs {
		ms[i] = netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(typ), Flags: netlink.Request | netlink.HeaderFlags(flags), Sequence: uint32(i + 1)},
			Data:   m,
		}
	}
	ms[len(ms)-1].Header.Flags |= netlink.Acknowledge
	if _, err := c.c.SendMessages(ms); err != nil {
		return errno(err)
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := c.receive(buf)
		if err != nil {
			return err
		}
		// struct nlmsghdr and the number in struct nlmsgerr; one a datagram.
		if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(buf[4:]) != unix.NLMSG_ERROR {
			continue
		}
		i := int(binary.NativeEndian.Uint32(buf[8:])) - 1
		if i < 0 || i >= len(errs) {
			continue
		}
		if e := int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:])); e != 0 {
			errs[i] = unix.Errno(-e)
		}
		if i == len(errs)-1 {
			return nil
		}
	}
}

// receive reads one datagram by a bare system call: the answers are there when
// the send returns, and parking a goroutine that is locked to its thread costs
// more than the kernel takes for a route.
func (c *Conn) receive(buf []byte) (n int, err error) {
	rc, err := c.c.SyscallConn()
	if err != nil {
		return 0, err
	}
	rerr := rc.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	return n, errors.Join(rerr, err)
}

func errno(err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}
