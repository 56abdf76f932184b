package nft

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Extension is a match or target of iptables, in a rule of nftables or of a
// legacy table.
type Extension struct {
	Name     string
	Revision byte
	Data     []byte
}

// Place is where an extension stands.
type Place struct {
	Chain   string // "ip nat chain OUTPUT"
	Family  byte   // NFPROTO_IPV4, …
	Proto   uint8
	Output  bool // in a table of nat, on the way out of the host itself
	Inbound bool // before the host decides where to
}

func (c *scan) extension(e object) (Place, Extension) {
	family := c.at.family
	return Place{c.at.chain, family, c.proto, c.at.output, c.at.inbound},
		Extension{e.str(unix.NFTA_MATCH_NAME), byte(e.num(unix.NFTA_MATCH_REV)), e.nest(unix.NFTA_MATCH_INFO).attrs}
}

func (c *scan) match(e object) { c.seen.Match(c.extension(e)) }

func (c *scan) target(e object) { c.seen.Target(c.extension(e)) }

// Global reports a target that acts on something of the whole machine, whichever
// network namespace it is in: a light, or a timer in /sys that is found by name
// and is then that of the host's rule. Packets go on after either, so a rule less
// changes no verdict.
func (x Extension) Global() bool { return x.Name == "LED" || x.Name == "IDLETIMER" }

// Match learns from a match.
func (s *Seen) Match(at Place, x Extension) {
	switch x.Name {
	case "mark", "connmark": // mark, mask
		if len(x.Data) >= 8 {
			s.mark(word32(x.Data, 0), word32(x.Data, 4))
		}
	case "owner", "cgroup":
		s.Owners = append(s.Owners, at.Chain)
	case "rpfilter":
		if at.Inbound {
			s.RPFilter = append(s.RPFilter, at.Chain)
		}
	}
}

// Target learns from a target.
func (s *Seen) Target(at Place, x Extension) {
	switch x.Name {
	case "MARK": // mark, mask
		if x.Revision >= 2 && len(x.Data) >= 8 {
			s.mark(word32(x.Data, 0), word32(x.Data, 4))
		}
	case "CONNMARK": // the flow's mark, its mask, the packet's mask; from revision 2 a shift; mode
		const set = 0
		mode := 12
		if x.Revision >= 2 {
			mode = 14
		}
		if len(x.Data) > mode && x.Data[mode] == set {
			s.mark(word32(x.Data, 0), word32(x.Data, 4))
		}
	case "TPROXY": // mask, mark
		if len(x.Data) >= 8 {
			s.mark(word32(x.Data, 4), word32(x.Data, 0))
		}
	case "NFQUEUE": // number, total, flags
		const bypass = 0x1
		if x.Revision < 2 || len(x.Data) < 5 || x.Data[4]&bypass == 0 {
			s.Queues = append(s.Queues, at.Chain)
		}
	case "REDIRECT", "DNAT":
		s.translation(at, x)
	}
}

func (s *Seen) mark(value, mask uint32) {
	if mask != 0 {
		s.Marks = append(s.Marks, Mark{value & mask, mask})
	}
}

// translation decodes the two forms of a range of nat: addresses of IPv4 and a
// count before them (nf_nat_ipv4_multi_range_compat), or of either family
// (nf_nat_range).
func (s *Seen) translation(at Place, x Extension) {
	if !at.Output {
		return
	}
	const mapsAddress, portsGiven = 0x1, 0x2 // NF_NAT_RANGE_MAP_IPS, NF_NAT_RANGE_PROTO_SPECIFIED
	var flags uint32
	var addr netip.Addr
	var ports []byte
	switch b := x.Data; {
	case x.Revision == 0 && at.Family == unix.NFPROTO_IPV4 && len(b) >= 20:
		flags, addr, ports = word32(b, 4), netip.AddrFrom4([4]byte(b[8:12])), b[16:20]
	case len(b) >= 40 && at.Family == unix.NFPROTO_IPV4:
		flags, addr, ports = word32(b, 0), netip.AddrFrom4([4]byte(b[4:8])), b[36:40]
	case len(b) >= 40:
		flags, addr, ports = word32(b, 0), netip.AddrFrom16([16]byte(b[4:20])), b[36:40]
	default:
		return
	}
	r := Redirect{Proto: at.Proto, Four: at.Family != unix.NFPROTO_IPV6, Six: at.Family != unix.NFPROTO_IPV4}
	if x.Name == "DNAT" && flags&mapsAddress != 0 {
		r.Addr = addr
	}
	var first, last uint16
	if flags&portsGiven != 0 {
		first, last = binary.BigEndian.Uint16(ports), binary.BigEndian.Uint16(ports[2:])
	}
	s.redirect(r, first, max(first, last))
}

func word32(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
