package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableOwner is NFT_TABLE_F_OWNER, which x/sys lacks.
const tableOwner = 0x2

// priority is that of the output chain: before dstnat (-100), so that a
// redirection of ours is decided before any inside.
const priority = -110

const chain = "output"

// Redirect sends what a process inside dials to a socket on its own loopback.
type Redirect struct {
	Proto uint8 // IPPROTO_TCP or IPPROTO_UDP
	// Addr is the destination; when unspecified, any local address of its family.
	Addr netip.Addr
	Port uint16
	To   uint16 // port on 127.0.0.1 or ::1
}

// Table is a table of redirections that lives as long as its socket.
type Table struct {
	c    *netlink.Conn
	port uint32 // the socket's netlink address, which the kernel gives as owner
	name string
	// Owned is false on kernels before 5.12: whoever is root inside can then
	// flush the table.
	Owned bool
}

// Make makes the table in the namespace ns.
func Make(ns int, name string) (*Table, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns})
	if err != nil {
		return nil, fmt.Errorf("dial nf_tables: %w", err)
	}
	t := &Table{c: c, name: name, Owned: true}
	if t.port, err = address(c); err != nil {
		c.Close()
		return nil, err
	}
	if err = t.create(tableOwner); errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		t.Owned = false
		err = t.create(0)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("make table %s: %w", name, err)
	}
	return t, nil
}

// address is the number by which the kernel knows a netlink socket.
func address(c *netlink.Conn) (uint32, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var port uint32
	cerr := rc.Control(func(fd uintptr) {
		var sa unix.Sockaddr
		if sa, err = unix.Getsockname(int(fd)); err == nil {
			port = sa.(*unix.SockaddrNetlink).Pid
		}
	})
	return port, errors.Join(cerr, err)
}

func (t *Table) create(flags uint32) error {
	table, err := message(unix.NFT_MSG_NEWTABLE, int(netlink.Create|netlink.Excl), unix.NFPROTO_INET, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_TABLE_NAME, t.name)
		ae.Uint32(unix.NFTA_TABLE_FLAGS, flags)
	})
	if err != nil {
		return err
	}
	hook, err := message(unix.NFT_MSG_NEWCHAIN, int(netlink.Create), unix.NFPROTO_INET, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_CHAIN_TABLE, t.name)
		ae.String(unix.NFTA_CHAIN_NAME, chain)
		ae.String(unix.NFTA_CHAIN_TYPE, "nat")
		ae.Nested(unix.NFTA_CHAIN_HOOK, func(h *netlink.AttributeEncoder) error {
			h.Uint32(unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_LOCAL_OUT)
			h.Int32(unix.NFTA_HOOK_PRIORITY, priority)
			return nil
		})
	})
	if err != nil {
		return err
	}
	return batch(t.c, []netlink.Message{table, hook})
}

// Set replaces all redirections at once.
func (t *Table) Set(rs []Redirect) error {
	flush, err := message(unix.NFT_MSG_DELRULE, 0, unix.NFPROTO_INET, t.inChain)
	if err != nil {
		return err
	}
	ms := []netlink.Message{flush}
	for _, r := range rs {
		exprs, err := r.expressions()
		if err != nil {
			return fmt.Errorf("encode redirection: %w", err)
		}
		m, err := message(unix.NFT_MSG_NEWRULE, int(netlink.Create|netlink.Append), unix.NFPROTO_INET, func(ae *netlink.AttributeEncoder) {
			t.inChain(ae)
			ae.Nested(unix.NFTA_RULE_EXPRESSIONS, func(list *netlink.AttributeEncoder) error {
				for _, e := range exprs {
					list.Bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, e)
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		ms = append(ms, m)
	}
	return batch(t.c, ms)
}

func (t *Table) inChain(ae *netlink.AttributeEncoder) {
	ae.String(unix.NFTA_RULE_TABLE, t.name)
	ae.String(unix.NFTA_RULE_CHAIN, chain)
}

// Close lets go of the table, which vanishes if it is owned.
func (t *Table) Close() error { return t.c.Close() }

// expressions is the rule in the kernel's words: family, destination, protocol,
// port, redirect.
func (r Redirect) expressions() ([][]byte, error) {
	family, offset := byte(unix.NFPROTO_IPV4), uint32(16) // of daddr in the header
	if r.Addr.Is6() {
		family, offset = unix.NFPROTO_IPV6, 24
	}
	equal := func(b ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: b} }
	es := []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equal(family)}
	if r.Addr.IsUnspecified() {
		es = append(es,
			&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
			equal(binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)...))
	} else {
		a := r.Addr.AsSlice()
		es = append(es,
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(a))},
			equal(a...))
	}
	es = append(es,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal(r.Proto),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		equal(binary.BigEndian.AppendUint16(nil, r.Port)...),
		&expr.Immediate{Register: 1, Data: binary.BigEndian.AppendUint16(nil, r.To)},
		&expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED})
	var out [][]byte
	for _, e := range es {
		b, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}
