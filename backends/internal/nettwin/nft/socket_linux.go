package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/userns"
)

// bufferSize is what the kernel may hold for a socket in one direction. With the
// default a batch of 1000 rules does not fit into one send.
const bufferSize = 64 << 20

// socket is a netlink socket of one namespace, for dumps and whole rulesets.
type socket struct {
	fd  int
	in  []byte
	seq uint32
}

// open makes a socket. The error is EPROTONOSUPPORT on a kernel without
// netfilter's netlink.
func open(ns int) (*socket, error) {
	s := &socket{in: make([]byte, 256<<10)}
	err := netns.Do(ns, func() (err error) {
		s.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open nf_tables: %w", err)
	}
	for _, o := range []int{unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, o, bufferSize); err != nil {
			unix.Close(s.fd)
			return nil, fmt.Errorf("size buffers of nf_tables: %w", err)
		}
	}
	// Without it each error brings the message along that it is about.
	if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		unix.Close(s.fd)
		return nil, fmt.Errorf("shorten answers of nf_tables: %w", err)
	}
	tv := unix.NsecToTimeval(batchTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		unix.Close(s.fd)
		return nil, fmt.Errorf("bound waits for nf_tables: %w", err)
	}
	return s, nil
}

func (s *socket) Close() error { return unix.Close(s.fd) }

// object is one dumped message.
type object struct {
	family byte
	attrs  []byte
}

// appendMessage adds one message to what is sent.
func appendMessage(b []byte, typ, flags uint16, seq uint32, family byte, attrs []byte) []byte {
	at := len(b)
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.NLMSG_HDRLEN+headerSize+len(attrs)))
	b = binary.NativeEndian.AppendUint16(b, unix.NFNL_SUBSYS_NFTABLES<<8|typ)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, family, unix.NFNETLINK_V0, 0, 0)
	b = append(b, attrs...)
	return append(b, make([]byte, -(len(b)-at)&3)...)
}

// dump asks for all objects of a type.
func (s *socket) dump(typ uint16, family byte, attrs []byte) ([]object, error) {
	// A dump during which the ruleset changed is marked, and useless.
	for range 8 {
		out, torn, err := s.dumpOnce(typ, family, attrs)
		if err != nil || !torn {
			return out, err
		}
	}
	return nil, unix.EAGAIN
}

func (s *socket) dumpOnce(typ uint16, family byte, attrs []byte) (out []object, torn bool, err error) {
	s.seq++
	seq := s.seq
	if err := s.send(nil, appendMessage(nil, typ, unix.NLM_F_DUMP, seq, family, attrs)); err != nil {
		return nil, false, err
	}
	for {
		ms, err := s.receive(0)
		if err != nil {
			return nil, false, err
		}
		for _, m := range ms {
			if m.Header.Seq != seq {
				continue // the rest of a dump that was given up
			}
			torn = torn || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			switch m.Header.Type {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				return out, torn, outcome(m.Data)
			default:
				if len(m.Data) >= headerSize {
					out = append(out, object{m.Data[0], m.Data[headerSize:]})
				}
			}
		}
	}
}

// generation is a number that every committed change of the ruleset moves.
func (s *socket) generation() (uint32, error) {
	s.seq++
	if err := s.send(nil, appendMessage(nil, unix.NFT_MSG_GETGEN, 0, s.seq, unix.AF_UNSPEC, nil)); err != nil {
		return 0, err
	}
	for {
		ms, err := s.receive(0)
		if err != nil {
			return 0, err
		}
		for _, m := range ms {
			switch {
			case m.Header.Seq != s.seq:
			case m.Header.Type == unix.NLMSG_ERROR:
				return 0, outcome(m.Data)
			case len(m.Data) >= headerSize:
				return object{attrs: m.Data[headerSize:]}.num(unix.NFTA_GEN_ID), nil
			}
		}
	}
}

// reply is one netlink message that came in.
type reply struct {
	Header unix.NlMsghdr
	Data   []byte
}

// receive reads one datagram and splits it.
func (s *socket) receive(flags int) ([]reply, error) {
	var n int
	var err error
	for {
		if n, _, err = unix.Recvfrom(s.fd, s.in, flags); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, os.NewSyscallError("recvfrom", err)
	}
	var out []reply
	for b := bytes.Clone(s.in[:n]); len(b) >= unix.NLMSG_HDRLEN; {
		h := *(*unix.NlMsghdr)(unsafe.Pointer(&b[0]))
		if h.Len < unix.NLMSG_HDRLEN || int(h.Len) > len(b) {
			break
		}
		out = append(out, reply{h, b[unix.NLMSG_HDRLEN:h.Len]})
		b = b[min((int(h.Len)+3)&^3, len(b)):]
	}
	return out, nil
}

// outcome is the error that the data of an acknowledgement or of the end of a
// dump begins with.
func outcome(data []byte) error {
	if len(data) < 4 {
		return nil
	}
	if e := int32(binary.NativeEndian.Uint32(data)); e != 0 {
		return unix.Errno(-e)
	}
	return nil
}

// send hands the kernel one buffer, as root of the user namespace owner where it
// is not nil.
func (s *socket) send(owner *os.File, b []byte) error {
	if owner != nil {
		return userns.Send(owner, s.fd, b)
	}
	return os.NewSyscallError("sendto", unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// str reads a text attribute.
func (o object) str(typ uint16) string {
	s, _, _ := bytes.Cut(rtnl.Find(o.attrs, typ), []byte{0})
	return string(s)
}

// num reads a number attribute.
func (o object) num(typ uint16) uint32 {
	b := rtnl.Find(o.attrs, typ)
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// nest is what a nested attribute holds.
func (o object) nest(typ uint16) object { return object{o.family, rtnl.Find(o.attrs, typ)} }

// in is "inet filter", the family and table of the object.
func (o object) in(table uint16) string { return familyName(o.family) + " " + o.str(table) }
