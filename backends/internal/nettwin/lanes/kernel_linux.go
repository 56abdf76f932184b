package lanes

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// kernel is a routing socket in the host's network namespace. It asks for strict
// checking (Linux 4.20): a dump is then filtered by the kernel, and a host with a
// full routing table is not read to find two routes.
type kernel struct {
	c *netlink.Conn
	// step is called after everything that changed the host; tests die in it.
	step func()
}

func dial(host int) (*kernel, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: host, Strict: true})
	if err != nil {
		return nil, fmt.Errorf("dial rtnetlink: %w", err)
	}
	return &kernel{c: c, step: func() {}}, nil
}

func (k *kernel) close() error { return k.c.Close() }

// do sends one request and waits for the answer.
func (k *kernel) do(typ uint16, flags netlink.HeaderFlags, msg []byte) error {
	_, err := k.c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(typ), Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   msg,
	})
	k.step()
	return err
}

// add makes something that must not be there yet: what is there is somebody
// else's.
func (k *kernel) add(typ uint16, msg []byte) error {
	return k.do(typ, netlink.Create|netlink.Excl, msg)
}

// remove deletes something that may be gone, or its interface with it.
func (k *kernel) remove(typ uint16, msg []byte) error {
	err := k.do(typ, 0, msg)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// get sends one request that has one answer.
func (k *kernel) get(typ uint16, msg []byte) ([]byte, error) {
	ms, err := k.c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(typ), Flags: netlink.Request},
		Data:   msg,
	})
	if err != nil {
		return nil, err
	}
	if len(ms) == 0 {
		return nil, unix.ENODATA
	}
	return ms[0].Data, nil
}

// dump returns the answers to a dump request that are at least size bytes long.
// Nothing of a family that the kernel lacks, or of a table that is not there, is
// nothing.
func (k *kernel) dump(typ uint16, msg []byte, size int) ([][]byte, error) {
	for range 8 {
		ms, err := k.c.Execute(netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(typ), Flags: netlink.Request | netlink.Dump},
			Data:   msg,
		})
		if errors.Is(err, unix.ENOENT) || noFamily(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("dump rtnetlink type %d: %w", typ, err)
		}
		out, torn := make([][]byte, 0, len(ms)), false
		for _, m := range ms {
			torn = torn || m.Header.Flags&netlink.DumpInterrupted != 0
			if len(m.Data) >= size {
				out = append(out, m.Data)
			}
		}
		if !torn {
			return out, nil
		}
	}
	return nil, fmt.Errorf("dump rtnetlink type %d: %w", typ, unix.EAGAIN)
}

// noFamily reports that the kernel was built, or started, without IPv6.
func noFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

func family(six bool) uint8 {
	if six {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
