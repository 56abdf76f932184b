package lanes

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Actions of rules (FR_ACT_*), which x/sys lacks by value.
const (
	toTable = 1
	nop     = 3
)

// Attributes of rules since Linux 6.15, which x/sys lacks. A rule with one port
// is dumped with a mask of ones.
const (
	fraSportMask = 28
	fraDportMask = 29
)

// rule is a policy rule as far as ours go. What a rule of ours cannot have makes
// it other.
type rule struct {
	six      bool
	pref     uint32
	action   uint8
	table    uint32
	protocol uint8
	mark     Mark
	src, dst netip.Prefix
	ipproto  uint8
	sport    uint16
	dport    uint16
	iif      string
	invert   bool
	other    bool
}

// laneRule leads marked packets into their table.
func laneRule(pref, n uint32, six bool) rule {
	return rule{six: six, pref: pref, action: toTable, table: n, protocol: protocol, mark: Mark{n & mask, mask}}
}

// flowRule leads the packets of one flow into a table, marked or not, and so the
// lookup of the way back of its answers.
func flowRule(pref, n uint32, f way.Flow) rule {
	src, dst := f.Src.Addr(), f.Dst.Addr()
	return rule{
		six: src.Is6(), pref: pref, action: toTable, table: n, protocol: protocol,
		src: netip.PrefixFrom(src, src.BitLen()), dst: netip.PrefixFrom(dst, dst.BitLen()),
		ipproto: f.Proto, sport: f.Src.Port(), dport: f.Dst.Port(),
	}
}

// ours reports whether the rule is one that this package makes.
func (r rule) ours() (block, bool) {
	b, ok := blockOf(r.table)
	if !ok || r.other || r.pref > firstPref {
		return 0, false
	}
	if r == laneRule(r.pref, r.table, r.six) {
		return b, true
	}
	f := way.Flow{
		Proto: r.ipproto,
		Src:   netip.AddrPortFrom(r.src.Addr(), r.sport), Dst: netip.AddrPortFrom(r.dst.Addr(), r.dport),
	}
	exact := r.src.IsSingleIP() && r.dst.IsSingleIP() && r.sport != 0 && r.dport != 0 && ported(r.ipproto)
	return b, exact && r == flowRule(r.pref, r.table, f)
}

func ported(proto uint8) bool { return proto == unix.IPPROTO_TCP || proto == unix.IPPROTO_UDP }

// local reports the rule that leads into the table of the host's own addresses.
// Nothing goes before it.
func (r rule) local() bool { return r.action == toTable && r.table == unix.RT_TABLE_LOCAL }

// takes reports whether the rule may match a packet that the host itself sends
// with mark n, or the lookup of the way back, which has none. Of selectors other
// than marks it only knows that they may match.
func (r rule) takes(n uint32) bool {
	if r.action == nop {
		return false
	}
	if r.invert {
		plain := rule{six: r.six, pref: r.pref, action: r.action, table: r.table, protocol: r.protocol, mark: r.mark, invert: true}
		return r != plain || !r.mark.matches(n) || !r.mark.matches(0)
	}
	// Packets of the host, and those that it takes in, are looked up as coming from
	// the loopback interface.
	if r.iif != "" && r.iif != "lo" {
		return false
	}
	return r.mark.matches(n) || r.mark.matches(0)
}

// request encodes the rule as the kernel wants it in a request.
func (r rule) request() []byte {
	m := make([]byte, rtnl.SizeofRuleHdr)
	m[0], m[7] = family(r.six), r.action
	if r.src.IsValid() {
		m[1], m[2] = uint8(r.dst.Bits()), uint8(r.src.Bits())
		m = rtnl.Append(m, unix.FRA_SRC, r.src.Addr().AsSlice())
		m = rtnl.Append(m, unix.FRA_DST, r.dst.Addr().AsSlice())
		m = rtnl.Append(m, unix.FRA_IP_PROTO, []byte{r.ipproto})
		m = rtnl.Append(m, unix.FRA_SPORT_RANGE, ports(r.sport))
		m = rtnl.Append(m, unix.FRA_DPORT_RANGE, ports(r.dport))
	}
	if r.mark.Mask != 0 {
		m = rtnl.AppendUint32(m, unix.FRA_FWMARK, r.mark.Value)
		m = rtnl.AppendUint32(m, unix.FRA_FWMASK, r.mark.Mask)
	}
	m = rtnl.AppendUint32(m, unix.FRA_PRIORITY, r.pref)
	m = rtnl.AppendUint32(m, unix.FRA_TABLE, r.table)
	return rtnl.Append(m, unix.FRA_PROTOCOL, []byte{r.protocol})
}

// ports encodes struct fib_rule_port_range.
func ports(p uint16) []byte {
	return binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, p), p)
}

// parseRule reads a dumped rule.
func parseRule(m []byte) rule {
	flags := binary.NativeEndian.Uint32(m[8:])
	r := rule{
		six: m[0] == unix.AF_INET6, table: uint32(m[4]), action: m[7],
		invert: flags&unix.FIB_RULE_INVERT != 0,
		other:  m[3] != 0, // a type of service
	}
	for a := range rtnl.Attrs(m[rtnl.SizeofRuleHdr:]) {
		switch a.Type {
		case unix.FRA_PRIORITY:
			r.pref = a.Uint32()
		case unix.FRA_TABLE:
			r.table = a.Uint32()
		case unix.FRA_PROTOCOL:
			r.protocol = first(a.Value)
		case unix.FRA_FWMARK:
			r.mark.Value = a.Uint32()
		case unix.FRA_FWMASK:
			r.mark.Mask = a.Uint32()
		case unix.FRA_SRC:
			r.src = prefix(a.Value, m[2])
		case unix.FRA_DST:
			r.dst = prefix(a.Value, m[1])
		case unix.FRA_IIFNAME:
			r.iif = a.String()
		case unix.FRA_IP_PROTO:
			r.ipproto = first(a.Value)
		case unix.FRA_SPORT_RANGE:
			r.sport = r.port(a.Value)
		case unix.FRA_DPORT_RANGE:
			r.dport = r.port(a.Value)
		default:
			r.other = r.other || !unsaid(a)
		}
	}
	return r
}

// port reads a range of one port; of another, it notes that there is one.
func (r *rule) port(b []byte) uint16 {
	if len(b) < 4 || binary.NativeEndian.Uint16(b) != binary.NativeEndian.Uint16(b[2:]) {
		r.other = true
		return 0
	}
	return binary.NativeEndian.Uint16(b)
}

// unsaid reports an attribute with which the kernel says that there is none.
func unsaid(a rtnl.Attr) bool {
	switch a.Type {
	case unix.FRA_SUPPRESS_PREFIXLEN, unix.FRA_SUPPRESS_IFGROUP:
		return a.Uint32() == ^uint32(0)
	case unix.FRA_FLOW, unix.FRA_TUN_ID, unix.FRA_L3MDEV:
		return first(a.Value) == 0 && (len(a.Value) < 4 || a.Uint32() == 0)
	case fraSportMask, fraDportMask:
		return len(a.Value) >= 2 && binary.NativeEndian.Uint16(a.Value) == ^uint16(0)
	case unix.FRA_PAD:
		return true
	}
	return false
}

func first(b []byte) uint8 {
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

func prefix(b []byte, bits uint8) netip.Prefix {
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, int(bits))
}

// rules lists the rules of a family, in the order in which they are asked.
func (k *kernel) rules(six bool) ([]rule, error) {
	ms, err := k.dumpRules(six)
	if err != nil {
		return nil, err
	}
	out := make([]rule, len(ms))
	for i, m := range ms {
		out[i] = parseRule(m)
	}
	return out, nil
}

func (k *kernel) dumpRules(six bool) ([][]byte, error) {
	m := make([]byte, rtnl.SizeofRuleHdr)
	m[0] = family(six)
	ms, err := k.Dump(unix.RTM_GETRULE, m)
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	return ms, nil
}

func (k *kernel) addRule(r rule) error    { return k.add(unix.RTM_NEWRULE, r.request()) }
func (k *kernel) removeRule(r rule) error { return k.remove(unix.RTM_DELRULE, r.request()) }
