package lanes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Of the kernel's netconf.h, which x/sys lacks.
const (
	netconfIndex    = 1 // NETCONFA_IFINDEX
	netconfRPFilter = 3 // NETCONFA_RP_FILTER
	netconfAll      = -1
	netconfHeader   = 4 // struct netconfmsg, padded
)

// Ways of filtering, as ip-sysctl says.
const (
	loose  = 2 // the sender must be reachable by any interface
	strict = 1 // by the one it came in by
)

// rpFilter is how an interface filters reverse paths. The larger of the values of
// the interface and of "all" counts.
func (k *kernel) rpFilter(index int) (uint32, error) {
	most := uint32(0)
	for _, i := range []int{netconfAll, index} {
		m := make([]byte, netconfHeader)
		m[0] = unix.AF_INET
		m, err := k.Get(unix.RTM_GETNETCONF, rtnl.AppendUint32(m, netconfIndex, uint32(i)))
		if err != nil {
			return 0, fmt.Errorf("read rp_filter: %w", err)
		}
		if v := rtnl.Find(m[min(netconfHeader, len(m)):], netconfRPFilter); len(v) == 4 {
			most = max(most, binary.NativeEndian.Uint32(v))
		}
	}
	return most, nil
}

// back is where the host's kernel looks for the sender of an answer.
type back int

const (
	nowhere   back = iota // there is no way to it
	elsewhere             // by another interface
	here                  // by the interface of the lane
)

// reverse asks the kernel as its own filter does: without a mark, with the ports
// that some rule may ask for. Any hop of a multipath route counts.
func (k *kernel) reverse(f way.Flow) (back, error) {
	src, dst := f.Src.Addr(), f.Dst.Addr()
	m := make([]byte, unix.SizeofRtMsg)
	m[0], m[1], m[2] = family(src.Is6()), uint8(dst.BitLen()), uint8(src.BitLen())
	binary.NativeEndian.PutUint32(m[8:], unix.RTM_F_FIB_MATCH)
	m = rtnl.Append(m, unix.RTA_DST, dst.AsSlice())
	m = rtnl.Append(m, unix.RTA_SRC, src.AsSlice())
	if ported(f.Proto) {
		m = rtnl.Append(m, unix.RTA_IP_PROTO, []byte{f.Proto})
		m = rtnl.Append(m, unix.RTA_SPORT, binary.BigEndian.AppendUint16(nil, f.Src.Port()))
		m = rtnl.Append(m, unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, f.Dst.Port()))
	}
	m, err := k.Get(unix.RTM_GETROUTE, m)
	var no unix.Errno
	if errors.As(err, &no) { // ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL, by the type of route
		return nowhere, nil
	}
	if err != nil {
		return nowhere, fmt.Errorf("look up the way back: %w", err)
	}
	if len(m) < unix.SizeofRtMsg || m[7] != unix.RTN_UNICAST {
		return nowhere, nil
	}
	if leads(m[unix.SizeofRtMsg:], f.Lane.Index) {
		return here, nil
	}
	return elsewhere, nil
}

// leads reports whether a route has a hop by an interface.
func leads(attrs []byte, index int) bool {
	for a := range rtnl.Attrs(attrs) {
		switch a.Type {
		case unix.RTA_OIF:
			if int(a.Uint32()) == index {
				return true
			}
		case unix.RTA_MULTIPATH:
			for b := a.Value; len(b) >= unix.SizeofRtNexthop; {
				if int(binary.NativeEndian.Uint32(b[4:])) == index {
					return true
				}
				n := (int(binary.NativeEndian.Uint16(b)) + 3) &^ 3
				if n < unix.SizeofRtNexthop || n > len(b) {
					return false
				}
				b = b[n:]
			}
		}
	}
	return false
}

// dropped says what on the host would drop the answers to a flow, if anything,
// and whether a rule for the flow would help.
func (l *Lanes) dropped(f way.Flow) (by string, help bool, err error) {
	facts, err := l.known()
	if err != nil {
		return "", false, err
	}
	six := f.Src.Addr().Is6()
	filter := facts.filter(six)
	mode := uint32(0)
	if !six { // IPv6 has no such setting
		if mode, err = l.kernel.rpFilter(f.Lane.Index); err != nil {
			return "", false, err
		}
	}
	if mode == 0 && filter == "" {
		return "", false, nil
	}
	b, err := l.kernel.reverse(f)
	switch {
	case err != nil || b == here:
		return "", false, err
	case filter != "":
		// Its lookup has neither ports nor this socket's mark.
		return "the host's packet filter drops them: " + filter, false, nil
	case mode == strict, mode == loose && b == nowhere:
		return "the host filters reverse paths (rp_filter)", true, nil
	}
	return "", false, nil
}

// filter names one that drops answers of a family.
func (f *facts) filter(six bool) string {
	for _, name := range f.filters {
		of, _, _ := strings.Cut(name, " ")
		if of == "ip" && six || of == "ip6" && !six {
			continue
		}
		return name
	}
	return ""
}

// exact is the flow with its addresses as the kernel has them.
func exact(f way.Flow) way.Flow {
	f.Src = netip.AddrPortFrom(plain(f.Src.Addr()), f.Src.Port())
	f.Dst = netip.AddrPortFrom(plain(f.Dst.Addr()), f.Dst.Port())
	return f
}
