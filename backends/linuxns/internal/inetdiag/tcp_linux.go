package inetdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// State is a TCP state as the kernel numbers it.
type State uint8

// The states a caller can ask for; see enum tcp_state in linux/tcp_states.h.
const (
	Established State = 1
	Listen      State = 10
)

// Socket is one TCP socket.
type Socket struct {
	State  State
	Local  netip.AddrPort // an IPv4-mapped address is given as IPv4
	Remote netip.AddrPort
	// Family is AF_INET or AF_INET6: an IPv6 socket may carry IPv4 addresses.
	Family uint8
	// V6Only is IPV6_V6ONLY; the kernel reports it for listeners.
	V6Only  bool
	Ifindex uint32 // of the interface it is bound to, or 0
	UID     uint32
	Inode   uint32 // 0 while it waits in an accept queue
}

const (
	sizeofID  = 48
	sizeofReq = 8 + sizeofID
	sizeofMsg = 4 + sizeofID + 20

	// attrV6Only is INET_DIAG_SKV6ONLY; x/sys does not have it.
	attrV6Only = 11

	// answerWithin bounds one receive. A dump is produced synchronously, so a
	// kernel that stays silent this long has a bug.
	answerWithin = 5 * time.Second
	// attempts bounds how often a dump that was interrupted is asked for again.
	attempts = 4
)

// errInterrupted: the table changed while it was read, so sockets may be
// missing from the answer or be in it twice.
var errInterrupted = errors.New("dump interrupted")

// TCP returns the sockets in one of the states, IPv4 first. The answer is that
// of the network namespace the calling thread is in.
func TCP(states ...State) ([]Socket, error) {
	var mask uint32
	for _, s := range states {
		mask |= 1 << s
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	defer unix.Close(fd)
	tv := unix.NsecToTimeval(answerWithin.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return nil, fmt.Errorf("set sock_diag time limit: %w", err)
	}
	var all []Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		got, err := dump(fd, family, mask)
		if err != nil {
			return nil, err
		}
		all = append(all, got...)
	}
	return all, nil
}

// dump asks until one pass was not interrupted. After the last attempt what is
// there is better than nothing: an interrupted dump errs by single sockets.
func dump(fd int, family uint8, states uint32) ([]Socket, error) {
	var got []Socket
	for try := range uint32(attempts) {
		var err error
		if got, err = pass(fd, family, states, try+1); err == nil {
			return got, nil
		}
		if errors.Is(err, unix.ENOENT) && family == unix.AF_INET6 {
			return nil, nil // a kernel without IPv6 has no handler for it
		}
		if !errors.Is(err, errInterrupted) {
			return nil, fmt.Errorf("dump tcp sockets of family %d: %w", family, err)
		}
	}
	return got, nil
}

func pass(fd int, family uint8, states, seq uint32) ([]Socket, error) {
	if err := unix.Sendto(fd, request(family, states, seq), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var (
		all         []Socket
		interrupted bool
		buf         = make([]byte, 64<<10)
	)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if sa, ok := from.(*unix.SockaddrNetlink); !ok || sa.Pid != 0 {
			continue // any process may send to a netlink socket; only 0 is the kernel
		}
		msgs, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range msgs {
			if m.Header.Seq != seq {
				continue
			}
			interrupted = interrupted || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				if interrupted {
					return all, errInterrupted
				}
				return all, nil
			case unix.NLMSG_ERROR:
				return nil, errno(m.Data)
			case unix.SOCK_DIAG_BY_FAMILY:
				s, err := parse(m.Data)
				if err != nil {
					return nil, err
				}
				all = append(all, s)
			}
		}
	}
}

// request is a struct nlmsghdr with a struct inet_diag_req_v2 whose id is all
// zero: a dump ignores it.
func request(family uint8, states, seq uint32) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+sizeofReq)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(b[8:], seq)
	r := b[unix.SizeofNlMsghdr:]
	r[0], r[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(r[4:], states)
	return b
}

func errno(b []byte) error {
	if len(b) < 4 {
		return errors.New("short netlink error")
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(b)))
}

// parse reads a struct inet_diag_msg and its attributes.
func parse(b []byte) (Socket, error) {
	if len(b) < sizeofMsg {
		return Socket{}, fmt.Errorf("short inet_diag message: %d bytes", len(b))
	}
	id, tail := b[4:4+sizeofID], b[4+sizeofID:]
	s := Socket{
		Family:  b[0],
		State:   State(b[1]),
		Local:   addrPort(b[0], id[4:20], id[0:2]),
		Remote:  addrPort(b[0], id[20:36], id[2:4]),
		Ifindex: binary.NativeEndian.Uint32(id[36:]),
		UID:     binary.NativeEndian.Uint32(tail[12:]),
		Inode:   binary.NativeEndian.Uint32(tail[16:]),
	}
	for a := b[sizeofMsg:]; len(a) >= unix.SizeofNlAttr; {
		n := int(binary.NativeEndian.Uint16(a))
		if n < unix.SizeofNlAttr || n > len(a) {
			return Socket{}, errors.New("truncated inet_diag attribute")
		}
		if binary.NativeEndian.Uint16(a[2:]) == attrV6Only && n > unix.SizeofNlAttr {
			s.V6Only = a[unix.SizeofNlAttr] != 0
		}
		a = a[min((n+3)&^3, len(a)):]
	}
	return s, nil
}

func addrPort(family uint8, addr, port []byte) netip.AddrPort {
	n := 4
	if family == unix.AF_INET6 {
		n = 16
	}
	a, _ := netip.AddrFromSlice(addr[:n]) // 4 or 16 bytes always parse
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(port))
}
