package relay

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// question is a flow as it is put to the host's kernel: which way would a socket
// like this go? The source port is 0 while the kernel has not chosen one.
type question struct {
	proto    uint8
	src, dst netip.AddrPort
	oif      int    // only for a destination that has a meaning on one link
	mark     uint32 // 0 for what an ordinary socket would do
	fib      bool   // ask for the route that matched instead of the way taken
}

// answer is what the kernel says.
type answer struct {
	typ       uint8 // RTN_UNICAST, RTN_LOCAL, …
	oif       int
	hop       netip.Addr // the destination itself when it is on the link
	multipath bool       // only when the route was asked for, as the next
	mtu       int        // 0: the link's
}

// inquirers bounds the questions asked at once. They take microseconds, and the
// kernel answers those about IPv4 one at a time anyway (RTNL).
const inquirers = 4

// kernel is a set of rtnetlink sockets in the host's namespace, opened before
// the process gives away the right to open any. A request and its answer are one
// system call each; a library that peeks at the size first doubles that, and a
// thousand dials at once ask several thousand times.
type kernel struct {
	free  chan *inquirer
	watch *watch
}

type inquirer struct {
	fd  int
	seq uint32
	out []byte
	in  [16 << 10]byte
}

func openKernel() (*kernel, error) {
	w, err := openWatch()
	if err != nil {
		return nil, err
	}
	k := &kernel{make(chan *inquirer, inquirers), w}
	for range inquirers {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return nil, fmt.Errorf("open rtnetlink: %w", err)
		}
		if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, fmt.Errorf("open rtnetlink: %w", err)
		}
		k.free <- &inquirer{fd: fd}
	}
	return k, nil
}

// ask puts one question. The error is the kernel's errno: what a socket would
// get for an answer.
func (k *kernel) ask(q question) (answer, error) {
	i := <-k.free
	defer func() { k.free <- i }()
	i.encode(q)
	if _, err := again(func() (int, error) { return unix.Write(i.fd, i.out) }); err != nil {
		return answer{}, err
	}
	for {
		n, err := again(func() (int, error) { return unix.Read(i.fd, i.in[:]) })
		if err != nil {
			return answer{}, err
		}
		if n < unix.NLMSG_HDRLEN || binary.NativeEndian.Uint32(i.in[8:]) != i.seq {
			continue
		}
		return decode(i.in[:n], q.dst.Addr())
	}
}

func (i *inquirer) encode(q question) {
	i.seq++
	b := append(i.out[:0], make([]byte, unix.NLMSG_HDRLEN+unix.SizeofRtMsg)...)
	dst := q.dst.Addr().WithZone("")
	rt := b[unix.NLMSG_HDRLEN:]
	rt[0], rt[1] = unix.AF_INET, uint8(dst.BitLen())
	if dst.Is6() {
		rt[0] = unix.AF_INET6
	}
	if q.fib {
		binary.NativeEndian.PutUint32(rt[8:], unix.RTM_F_FIB_MATCH)
	}
	src := q.src.Addr().WithZone("")
	if src.IsValid() {
		rt[2] = uint8(src.BitLen())
	}
	b = rtnl.Append(b, unix.RTA_DST, dst.AsSlice())
	if src.IsValid() {
		b = rtnl.Append(b, unix.RTA_SRC, src.AsSlice())
	}
	if q.oif != 0 {
		b = rtnl.AppendUint32(b, unix.RTA_OIF, uint32(q.oif))
	}
	if q.mark != 0 {
		b = rtnl.AppendUint32(b, unix.RTA_MARK, q.mark)
	}
	// The kernel takes these for the protocols that a rule can name and no others
	// (EOPNOTSUPP), and ports only beside TCP and UDP.
	switch q.proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		b = rtnl.Append(b, unix.RTA_IP_PROTO, []byte{q.proto})
		if p := q.src.Port(); p != 0 {
			b = rtnl.Append(b, unix.RTA_SPORT, binary.BigEndian.AppendUint16(nil, p))
		}
		if p := q.dst.Port(); p != 0 {
			b = rtnl.Append(b, unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, p))
		}
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		b = rtnl.Append(b, unix.RTA_IP_PROTO, []byte{q.proto})
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(b[8:], i.seq)
	i.out = b
}

// decode reads one RTM_NEWROUTE or the error instead of it.
func decode(m []byte, dst netip.Addr) (answer, error) {
	body := m[unix.NLMSG_HDRLEN:]
	if binary.NativeEndian.Uint16(m[4:]) == unix.NLMSG_ERROR {
		if len(body) < 4 {
			return answer{}, unix.EBADMSG
		}
		return answer{}, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
	}
	if len(body) < unix.SizeofRtMsg {
		return answer{}, unix.EBADMSG
	}
	a := answer{typ: body[7], hop: dst.WithZone("")}
	for at := range rtnl.Attrs(body[unix.SizeofRtMsg:]) {
		switch at.Type {
		case unix.RTA_OIF:
			a.oif = int(at.Uint32())
		case unix.RTA_GATEWAY:
			a.hop, _ = netip.AddrFromSlice(at.Value)
		case unix.RTA_VIA: // struct rtvia: family, address
			if len(at.Value) > 2 && binary.NativeEndian.Uint16(at.Value) == unix.AF_INET6 {
				a.hop, _ = netip.AddrFromSlice(at.Value[2:])
			}
		case unix.RTA_MULTIPATH:
			a.multipath = true
		case unix.RTA_METRICS:
			if v := rtnl.Find(at.Value, unix.RTAX_MTU); len(v) == 4 {
				a.mtu = int(binary.NativeEndian.Uint32(v))
			}
		}
	}
	return a, nil
}

// local reports whether an address is one of the host's own.
func (k *kernel) local(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	a, err := k.ask(question{dst: netip.AddrPortFrom(addr, 0)})
	return err == nil && a.typ == unix.RTN_LOCAL
}

// again repeats a system call that a signal interrupted.
func again(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != unix.EINTR {
			return n, err
		}
	}
}
