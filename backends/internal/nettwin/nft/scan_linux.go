package nft

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// content is what a register holds, as far as it matters here.
type content struct {
	kind      kind
	value     []byte // of a constant
	mask, xor uint32 // what was done to a mark
	least     []byte // what a mark was found not to be less than
	swapped   bool   // a number in network order
	set       *rawSet
}

type kind byte

const (
	other kind = iota
	constant
	mark      // of the packet, its flow or its socket
	wayBack   // the interface by which the answer goes, for packets that came by one
	protocol  // of the transport
	version   // of the network
	fromTable // the data of an element
)

// scan is the walk over one rule.
type scan struct {
	seen      *Seen
	table     *rawTable
	at        place
	regs      map[uint32]content
	proto     uint8
	four, six bool
	asksBack  bool
}

// rule learns what one rule has to tell.
func (s *Seen) rule(t *rawTable, at place, rule object) {
	c := scan{seen: s, table: t, at: at, regs: map[uint32]content{}, four: at.family != unix.NFPROTO_IPV6, six: at.family != unix.NFPROTO_IPV4}
	for name, e := range expressions(rtnl.Find(rule.attrs, unix.NFTA_RULE_EXPRESSIONS)) {
		if f := scanners[name]; f != nil {
			f(&c, e)
		}
	}
}

// scanners is by the name of the expression.
var scanners = map[string]func(*scan, object){
	"immediate": (*scan).immediate, "meta": (*scan).meta, "ct": (*scan).ct, "socket": (*scan).socket, "fib": (*scan).fib,
	"bitwise": (*scan).bitwise, "byteorder": (*scan).byteorder, "cmp": (*scan).cmp, "range": (*scan).within,
	"payload": (*scan).payload, "lookup": (*scan).lookup, "redir": (*scan).redir, "nat": (*scan).nat, "reject": (*scan).reject, "queue": (*scan).queue,
	"match": (*scan).match, "target": (*scan).target,
}

// slot numbers registers of four bytes. The kernel has two ways of naming them:
// four of sixteen bytes from 1, and sixteen of four bytes from 8.
func slot(reg uint32) uint32 {
	if reg >= unix.NFT_REG_1 && reg <= unix.NFT_REG_4 {
		return 4 * (reg - unix.NFT_REG_1)
	}
	return reg - unix.NFT_REG32_00
}

func (c *scan) reg(e object, typ uint16) content { return c.regs[slot(e.num(typ))] }

func (c *scan) load(e object, typ uint16, what content) { c.regs[slot(e.num(typ))] = what }

func (c *scan) immediate(e object) {
	if _, ok := verdictOf(e); ok {
		c.decided()
		return
	}
	c.load(e, unix.NFTA_IMMEDIATE_DREG, content{kind: constant, value: e.value(unix.NFTA_IMMEDIATE_DATA)})
}

func verdictOf(e object) (int32, bool) {
	if rtnl.Find(rtnl.Find(e.attrs, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT) == nil {
		return 0, false
	}
	_, code := e.verdict(unix.NFTA_IMMEDIATE_DATA)
	return code, true
}

func (c *scan) reject(object) { c.decided() }

// decided is called for a rule that decides about packets.
func (c *scan) decided() {
	if c.asksBack && c.at.inbound {
		name := c.at.chain
		if c.at.family == unix.NFPROTO_INET && c.four != c.six {
			family := byte(unix.NFPROTO_IPV4)
			if c.six {
				family = unix.NFPROTO_IPV6
			}
			name = familyName(family) + " packets in " + name
		}
		c.seen.RPFilter = append(c.seen.RPFilter, name)
	}
}

func (c *scan) queue(e object) {
	const flags, bypass = 3, 0x1 // NFTA_QUEUE_FLAGS, of 16 bits
	f := rtnl.Find(e.attrs, flags)
	if len(f) < 2 || f[1]&bypass == 0 {
		c.seen.Queues = append(c.seen.Queues, c.at.chain)
	}
}

func (c *scan) owner() { c.seen.Owners = append(c.seen.Owners, c.at.chain) }

func (c *scan) meta(e object) {
	key := e.num(unix.NFTA_META_KEY)
	if e.num(unix.NFTA_META_SREG) != 0 {
		if key == metaMark {
			c.sets(c.reg(e, unix.NFTA_META_SREG))
		}
		return
	}
	what := content{}
	switch key {
	case metaMark:
		what = content{kind: mark, mask: ^uint32(0)}
	case metaL4Proto:
		what.kind = protocol
	case metaNFProto:
		what.kind = version
	case metaSKUID, metaSKGID, metaCgroup:
		c.owner()
	}
	c.load(e, unix.NFTA_META_DREG, what)
}

const (
	metaNFProto = 15
	ctMark      = 3
)

func (c *scan) ct(e object) {
	is := e.num(unix.NFTA_CT_KEY) == ctMark
	if e.num(unix.NFTA_CT_SREG) != 0 {
		if is {
			c.sets(c.reg(e, unix.NFTA_CT_SREG))
		}
		return
	}
	what := content{}
	if is {
		what = content{kind: mark, mask: ^uint32(0)}
	}
	c.load(e, unix.NFTA_CT_DREG, what)
}

func (c *scan) socket(e object) {
	const key, dreg, ofMark, ofCgroup = 1, 2, 1, 3
	what := content{}
	switch e.num(key) {
	case ofMark:
		what = content{kind: mark, mask: ^uint32(0)}
	case ofCgroup:
		c.owner()
	}
	c.load(e, dreg, what)
}

func (c *scan) fib(e object) {
	const asked = unix.NFTA_FIB_F_SADDR | unix.NFTA_FIB_F_IIF
	what := content{}
	result := e.num(unix.NFTA_FIB_RESULT)
	if e.num(unix.NFTA_FIB_FLAGS)&asked == asked && (result == unix.NFT_FIB_RESULT_OIF || result == unix.NFT_FIB_RESULT_OIFNAME) {
		what.kind = wayBack
	}
	c.load(e, unix.NFTA_FIB_DREG, what)
}

// payload reads the protocol where a header of either family has it.
func (c *scan) payload(e object) {
	if rtnl.Find(e.attrs, unix.NFTA_PAYLOAD_DREG) == nil {
		return // it writes
	}
	what := content{}
	if loadsProtocol(unix.NFPROTO_IPV4, "payload", e) || loadsProtocol(unix.NFPROTO_IPV6, "payload", e) {
		what.kind = protocol
	}
	c.load(e, unix.NFTA_PAYLOAD_DREG, what)
}

// bitwise is reg & mask ^ xor, or a shift.
func (c *scan) bitwise(e object) {
	what := c.reg(e, unix.NFTA_BITWISE_SREG)
	mask, xor := e.value(unix.NFTA_BITWISE_MASK), e.value(unix.NFTA_BITWISE_XOR)
	if what.kind == mark && len(mask) == 4 && len(xor) == 4 {
		m := binary.NativeEndian.Uint32(mask)
		what.mask, what.xor = what.mask&m, what.xor&m^binary.NativeEndian.Uint32(xor)
	} else {
		what = content{}
	}
	c.load(e, unix.NFTA_BITWISE_DREG, what)
}

func (c *scan) byteorder(e object) {
	const sreg, dreg = 1, 2
	what := c.reg(e, sreg)
	what.swapped = !what.swapped
	c.load(e, dreg, what)
}

func (c *scan) cmp(e object) {
	v := e.value(unix.NFTA_CMP_DATA)
	what := c.reg(e, unix.NFTA_CMP_SREG)
	op := e.num(unix.NFTA_CMP_OP)
	equal := op == unix.NFT_CMP_EQ
	switch {
	case what.kind == mark && len(v) == 4:
		c.compare(op, e.num(unix.NFTA_CMP_SREG), what, v)
	case what.kind == wayBack:
		c.asksBack = true
	case what.kind == protocol && equal && len(v) == 1:
		c.proto = v[0]
	case what.kind == version && equal && len(v) == 1:
		c.four, c.six = v[0] == unix.NFPROTO_IPV4, v[0] == unix.NFPROTO_IPV6
	}
}

// compare learns from a mark that is compared. One that has but one bound has no
// block around it but that of all numbers, and tells nothing.
func (c *scan) compare(op, reg uint32, what content, v []byte) {
	switch op {
	case unix.NFT_CMP_EQ, unix.NFT_CMP_NEQ:
		c.seen.Marks = append(c.seen.Marks, Mark{number(v, what.swapped) & what.mask, what.mask})
	case unix.NFT_CMP_GTE, unix.NFT_CMP_GT:
		what.least = v
		c.regs[slot(reg)] = what
	case unix.NFT_CMP_LTE, unix.NFT_CMP_LT:
		if what.least != nil {
			c.seen.Marks = append(c.seen.Marks, block(number(what.least, what.swapped), number(v, what.swapped), what.mask))
		}
	}
}

// within compares with a range; a mark's is taken as the smallest block of
// numbers around it.
func (c *scan) within(e object) {
	const sreg, from, to = 1, 3, 4
	what := c.reg(e, sreg)
	a, b := e.value(from), e.value(to)
	if what.kind == mark && len(a) == 4 && len(b) == 4 {
		c.seen.Marks = append(c.seen.Marks, block(number(a, what.swapped), number(b, what.swapped), what.mask))
	}
}

func block(from, to, mask uint32) Mark {
	mask &= ^uint32(0) << bits.Len32(from^to) // a shift by 32 is 0
	return Mark{from & mask, mask}
}

func (c *scan) lookup(e object) {
	what := c.reg(e, unix.NFTA_LOOKUP_SREG)
	set := c.table.set(e.str(unix.NFTA_LOOKUP_SET))
	if set == nil {
		return
	}
	if what.kind == wayBack {
		c.asksBack = true
	}
	if set.num(unix.NFTA_SET_DATA_TYPE) == dataVerdict {
		c.decided()
	}
	if what.kind == mark {
		for _, el := range set.elements {
			if v := (object{attrs: el}).value(unix.NFTA_SET_ELEM_KEY); len(v) == 4 {
				c.seen.Marks = append(c.seen.Marks, Mark{number(v, what.swapped) & what.mask, what.mask})
			}
		}
	}
	if e.num(unix.NFTA_LOOKUP_DREG) != 0 {
		c.load(e, unix.NFTA_LOOKUP_DREG, content{kind: fromTable, set: set})
	}
}

// dataVerdict is NFT_DATA_VERDICT, the type of the data of a verdict map.
const dataVerdict = 0xffffff00

// values are what a register can be.
func (w content) values() [][]byte {
	switch w.kind {
	case constant:
		return [][]byte{w.value}
	case fromTable:
		var out [][]byte
		for _, e := range w.set.elements {
			if v := (object{attrs: e}).value(unix.NFTA_SET_ELEM_DATA); v != nil {
				out = append(out, v)
			}
		}
		return out
	}
	return nil
}

// sets learns from a mark that is set. One that is a mark itself changes those
// bits that were not kept, or were turned.
func (c *scan) sets(to content) {
	if to.kind == mark {
		if changed := ^to.mask | to.xor; changed != 0 {
			c.seen.Marks = append(c.seen.Marks, Mark{to.xor, changed})
		}
		return
	}
	for _, v := range to.values() {
		if len(v) == 4 {
			c.seen.Marks = append(c.seen.Marks, Mark{number(v, to.swapped), ^uint32(0)})
		}
	}
}

func (c *scan) redir(e object) {
	if e.num(unix.NFTA_REDIR_REG_PROTO_MIN) == 0 {
		c.redirect(netip.Addr{}, 0, 0)
		return
	}
	c.ports(netip.Addr{}, c.reg(e, unix.NFTA_REDIR_REG_PROTO_MIN), c.reg(e, unix.NFTA_REDIR_REG_PROTO_MAX))
}

// nat is an address, a port or both. A map may have both in one element, and the
// port's register is then the one after the address's; such are known only by
// their address.
func (c *scan) nat(e object) {
	if e.num(unix.NFTA_NAT_TYPE) != unix.NFT_NAT_DNAT {
		return
	}
	if f := e.num(unix.NFTA_NAT_FAMILY); f == unix.NFPROTO_IPV4 || f == unix.NFPROTO_IPV6 {
		c.four, c.six = f == unix.NFPROTO_IPV4, f == unix.NFPROTO_IPV6
	}
	size := 4
	if c.six && !c.four {
		size = 16
	}
	addrs := c.reg(e, unix.NFTA_NAT_REG_ADDR_MIN).values()
	if len(addrs) == 0 {
		addrs = [][]byte{nil}
	}
	for _, v := range addrs {
		a, _ := netip.AddrFromSlice(v[:min(size, len(v))])
		if e.num(unix.NFTA_NAT_REG_PROTO_MIN) != 0 {
			c.ports(a, c.reg(e, unix.NFTA_NAT_REG_PROTO_MIN), c.reg(e, unix.NFTA_NAT_REG_PROTO_MAX))
		} else if a.IsValid() {
			c.redirect(a, 0, 0)
		}
	}
}

// ports are those of two registers, which are one where the rule has no range.
func (c *scan) ports(to netip.Addr, from, last content) {
	for _, v := range from.values() {
		if len(v) < 2 {
			continue
		}
		first, end := binary.BigEndian.Uint16(v), binary.BigEndian.Uint16(v)
		if from.kind == constant && last.kind == constant && len(last.value) >= 2 {
			end = binary.BigEndian.Uint16(last.value)
		}
		c.redirect(to, first, end)
	}
}

// rangeSize bounds the ports of one rule that are listed.
const rangeSize = 64

func (c *scan) redirect(to netip.Addr, first, last uint16) {
	if c.at.output {
		c.seen.redirect(Redirect{Proto: c.proto, Addr: to, Four: c.four, Six: c.six}, first, last)
	}
}

func (s *Seen) redirect(r Redirect, first, last uint16) {
	for i := 0; i <= int(last)-int(first) && i < rangeSize; i++ {
		r.Port = first + uint16(i)
		s.Redirects = append(s.Redirects, r)
	}
}

// number reads a number in the machine's order, or in the network's.
func number(b []byte, swapped bool) uint32 {
	if swapped {
		return binary.BigEndian.Uint32(b)
	}
	return binary.NativeEndian.Uint32(b)
}
