package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

const (
	neighborChain = "neighbours"
	refusedName   = "refused"
)

// Links are those over which a next hop costs nothing or cannot be told.
type Links struct {
	// Mute ones ask for no neighbours (IFF_NOARP): an entry can be thrown out at once.
	Mute []int
	// Six are those with gateways of IPv6 for IPv4: the expression that names the
	// next hop knows only gateways of the packet's own family, and would count
	// every destination.
	Six []int
}

// BoundNeighbors drops what leaves the namespace, made there or forwarded, for a
// next hop that would be one too many (see [way.MaxNeighbors]). That is the last thing before the kernel
// makes the entry, and by the same next hop. A hop that is in use stays admitted.
// The kernel needs nft_rt and sets that rules fill (4.18).
func (t *Table) BoundNeighbors(exempt Links) error {
	t.exempt = exempt
	return t.boundNeighbors()
}

func (t *Table) boundNeighbors() error {
	rules := [][]expr.Any{
		// Links other than Ethernet have one neighbour at most or mute ones.
		{&expr.Meta{Key: expr.MetaKeyOIFTYPE, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_ETHER)}, accept()},
	}
	for _, i := range t.exempt.Mute {
		rules = append(rules, append(leavesBy(i), accept()))
	}
	for _, i := range t.exempt.Six {
		rules = append(rules, slices.Concat(family(unix.NFPROTO_IPV4), leavesBy(i), []expr.Any{accept()}))
	}
	var ms []netlink.Message
	for _, f := range hopFamilies {
		rules = append(rules, f.multicast(), f.admit())
		m, err := f.set(t)
		if err != nil {
			return err
		}
		ms = append(ms, m)
	}
	rules = append(rules, []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: refusedName}, &expr.Verdict{Kind: expr.VerdictDrop}})
	counter, err := message(unix.NFT_MSG_NEWOBJ, int(netlink.Create), unix.NFPROTO_INET, func(ae *netlink.AttributeEncoder) {
		t.counter(ae)
		ae.Nested(unix.NFTA_OBJ_DATA, func(*netlink.AttributeEncoder) error { return nil })
	})
	if err != nil {
		return err
	}
	hook, err := t.hook(neighborChain, unix.NF_INET_POST_ROUTING)
	if err != nil {
		return err
	}
	ms = append(ms, counter, hook)
	for _, r := range rules {
		m, err := t.rule(neighborChain, r)
		if err != nil {
			return fmt.Errorf("encode bound of neighbours: %w", err)
		}
		ms = append(ms, m)
	}
	if err := batch(t.c, ms); err != nil {
		return fmt.Errorf("bound neighbours: %w", err)
	}
	t.fixed = len(rules)
	return nil
}

// Refused counts the packets that BoundNeighbors dropped.
func (t *Table) Refused() (uint64, error) {
	m, err := message(unix.NFT_MSG_GETOBJ, 0, unix.NFPROTO_INET, t.counter)
	if err != nil {
		return 0, err
	}
	ms, err := t.ask(m)
	if errors.Is(err, unix.ENOENT) { // it was not bounded, or somebody flushed an unowned table
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count what was refused: %w", err)
	}
	for _, m := range ms {
		data := rtnl.Find(m.Data[min(headerSize, len(m.Data)):], unix.NFTA_OBJ_DATA)
		if b := rtnl.Find(data, unix.NFTA_COUNTER_PACKETS); len(b) == 8 {
			return binary.BigEndian.Uint64(b), nil
		}
	}
	return 0, fmt.Errorf("count what was refused: %w", unix.EBADMSG)
}

// counter names the one of BoundNeighbors.
func (t *Table) counter(ae *netlink.AttributeEncoder) {
	ae.String(unix.NFTA_OBJ_TABLE, t.name)
	ae.String(unix.NFTA_OBJ_NAME, refusedName)
	ae.Uint32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
}

// hopFamily is how the next hops of one family are told and kept.
type hopFamily struct {
	name          string
	proto         byte
	key           expr.RtKey
	typ, len      uint32 // of the address, the former for nft(8)
	daddr         uint32 // its offset in the header
	mask, several byte   // of the first byte of a multicast address
}

var hopFamilies = []hopFamily{
	{"neighbours4", unix.NFPROTO_IPV4, expr.RtNexthop4, 7, 4, 16, 0xf0, 0xe0},
	{"neighbours6", unix.NFPROTO_IPV6, expr.RtNexthop6, 8, 16, 24, 0xff, 0xff},
}

// set is the message that makes the set of admitted hops.
func (f hopFamily) set(t *Table) (netlink.Message, error) {
	return message(unix.NFT_MSG_NEWSET, int(netlink.Create), unix.NFPROTO_INET, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_SET_TABLE, t.name)
		ae.String(unix.NFTA_SET_NAME, f.name)
		ae.Uint32(unix.NFTA_SET_ID, uint32(f.proto)) // within the batch
		ae.Uint32(unix.NFTA_SET_FLAGS, unix.NFT_SET_EVAL|unix.NFT_SET_TIMEOUT)
		ae.Uint32(unix.NFTA_SET_KEY_TYPE, typeIfindex<<typeBits|f.typ)
		ae.Uint32(unix.NFTA_SET_KEY_LEN, 4+f.len)
		ae.Uint64(unix.NFTA_SET_TIMEOUT, uint64(way.NeighborTime.Milliseconds()))
		ae.Nested(unix.NFTA_SET_DESC, func(d *netlink.AttributeEncoder) error {
			d.Uint32(unix.NFTA_SET_DESC_SIZE, way.MaxNeighbors)
			return nil
		})
	})
}

// multicast lets pass what no neighbour is asked for. IPv6 asks for every
// neighbour at a group of its own: those would fill the set, and when it is full
// an admitted hop could not be asked for again.
func (f hopFamily) multicast() []expr.Any {
	return append(family(f.proto),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.daddr, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{f.mask}, Xor: []byte{0}},
		is(f.several), accept())
}

// admit accepts a packet whose next hop is in the set or, if there is room, comes
// into it. A rule ends where its set is full.
func (f hopFamily) admit() []expr.Any {
	return append(family(f.proto),
		&expr.Meta{Key: expr.MetaKeyOIF, Register: unix.NFT_REG32_00},
		&expr.Rt{Key: f.key, Register: unix.NFT_REG32_00 + 1},
		&expr.Dynset{SrcRegKey: unix.NFT_REG32_00, SetName: f.name, SetID: uint32(f.proto), Operation: unix.NFT_DYNSET_OP_UPDATE},
		accept())
}

func accept() expr.Any { return &expr.Verdict{Kind: expr.VerdictAccept} }

func family(f byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, is(f)}
}

// leavesBy matches packets that go out by a link.
func leavesBy(index int) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyOIF, Register: 1}, is(native(uint32(index))...)}
}
