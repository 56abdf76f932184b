package lanes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Of the kernel's nfnetlink_conntrack.h, which x/sys lacks.
const (
	ctGet        = 1<<8 | 1 // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET
	ctHeader     = 4        // struct nfgenmsg
	ctTupleOrig  = 1
	ctTupleReply = 2
	ctTupleIP    = 1
	ctTupleProto = 2
	ctSrc4       = 1
	ctDst4       = 2
	ctSrc6       = 3
	ctDst6       = 4
	ctProtoNum   = 1
	ctProtoSrc   = 2
	ctProtoDst   = 3
)

// Translated says where the host's address translation sends a flow: who answers
// to it is who got it. It asks connection tracking for this one flow, in the
// default zone. A flow that is not tracked is not translated. One that is sent on
// with another source is a limit: the twin's own translation is done before, so it
// would have had that source already.
func (l *Lanes) Translated(f way.Flow) (netip.AddrPort, error) {
	f = exact(f)
	if !ported(f.Proto) {
		return netip.AddrPort{}, nil
	}
	m, err := l.entry(f)
	if errors.Is(err, unix.ENOENT) {
		return netip.AddrPort{}, nil
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read connection tracking: %w", err)
	}
	got, answered, ok := reply(m)
	switch {
	case !ok:
		return netip.AddrPort{}, fmt.Errorf("read connection tracking: no reply tuple in %d bytes", len(m))
	case got != f.Dst:
		return got, nil
	case answered != f.Src.Addr():
		return netip.AddrPort{}, &way.Limit{
			Kind: way.Translation, Subject: f.Src.Addr().String(),
			Reason: fmt.Sprintf("the host's own nat gives it the source %s, the twin's does not", answered),
		}
	}
	return netip.AddrPort{}, nil
}

// entry reads what connection tracking has of a flow.
func (l *Lanes) entry(f way.Flow) ([]byte, error) {
	l.track.Lock()
	defer l.track.Unlock()
	if l.track.closed {
		return nil, fmt.Errorf("lanes: %w", os.ErrClosed)
	}
	if l.track.kernel == nil {
		k, err := dial(int(l.host.Fd()), unix.NETLINK_NETFILTER)
		if err != nil {
			return nil, err
		}
		l.track.kernel = k
	}
	return l.track.ask(ctGet, tracked(f))
}

// tracked asks for the entry of a flow by its original tuple.
func tracked(f way.Flow) []byte {
	src, dst := uint16(ctSrc4), uint16(ctDst4)
	if f.Src.Addr().Is6() {
		src, dst = ctSrc6, ctDst6
	}
	ip := rtnl.Append(rtnl.Append(nil, src, f.Src.Addr().AsSlice()), dst, f.Dst.Addr().AsSlice())
	proto := rtnl.Append(nil, ctProtoNum, []byte{f.Proto})
	proto = rtnl.Append(proto, ctProtoSrc, binary.BigEndian.AppendUint16(nil, f.Src.Port()))
	proto = rtnl.Append(proto, ctProtoDst, binary.BigEndian.AppendUint16(nil, f.Dst.Port()))
	tuple := rtnl.Append(nil, ctTupleIP|unix.NLA_F_NESTED, ip)
	tuple = rtnl.Append(tuple, ctTupleProto|unix.NLA_F_NESTED, proto)
	return rtnl.Append([]byte{family(f.Src.Addr().Is6()), 0, 0, 0}, ctTupleOrig|unix.NLA_F_NESTED, tuple)
}

// reply reads the reply tuple: who answers, and to whom.
func reply(m []byte) (from netip.AddrPort, to netip.Addr, ok bool) {
	if len(m) < ctHeader {
		return from, to, false
	}
	tuple := rtnl.Find(m[ctHeader:], ctTupleReply)
	ip, port := rtnl.Find(tuple, ctTupleIP), rtnl.Find(rtnl.Find(tuple, ctTupleProto), ctProtoSrc)
	src, dst := rtnl.Find(ip, ctSrc4), rtnl.Find(ip, ctDst4)
	if src == nil {
		src, dst = rtnl.Find(ip, ctSrc6), rtnl.Find(ip, ctDst6)
	}
	a, ok := netip.AddrFromSlice(src)
	to, ok2 := netip.AddrFromSlice(dst)
	if !ok || !ok2 || len(port) != 2 {
		return from, to, false
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port)), to, true
}
