package nft

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableOwner is NFT_TABLE_F_OWNER, which x/sys lacks.
const tableOwner = 0x2

const chain = "prerouting"

// last is the priority of the chains. Whatever else is loaded has had its say
// about a packet by then: nat changed its destination, mangle diverted it, a
// firewall dropped it.
const last = math.MaxInt32

// Table is a table of captures that lives as long as its socket, and of the bound
// on neighbours.
type Table struct {
	c      *netlink.Conn
	port   uint32 // the socket's netlink address, which the kernel gives as owner
	name   string
	size   int // rules of captures when last set
	exempt Links
	fixed  int // rules of the bound on neighbours; 0: there is none
	// Owned is false on kernels before 5.12: whoever is root inside can then
	// flush the table.
	Owned bool
}

// Make makes the table in the namespace ns. Owned says to ask for a table that
// nobody else can change.
func Make(ns int, name string, owned bool) (*Table, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns})
	if err != nil {
		return nil, fmt.Errorf("dial nf_tables: %w", err)
	}
	t := &Table{c: c, name: name, Owned: owned}
	if t.port, err = address(c); err != nil {
		c.Close()
		return nil, err
	}
	if err := t.create(); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// create makes the table, or makes it again. Only an unowned one can be lost.
func (t *Table) create() error {
	var err error
	if t.Owned {
		err = t.make(tableOwner)
		t.Owned = !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL)
	}
	if !t.Owned {
		err = t.make(0)
	}
	if err != nil {
		return fmt.Errorf("make table %s: %w", t.name, err)
	}
	return nil
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

func (t *Table) make(flags uint32) error {
	table, err := message(unix.NFT_MSG_NEWTABLE, int(netlink.Create|netlink.Excl), unix.NFPROTO_INET, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_TABLE_NAME, t.name)
		ae.Uint32(unix.NFTA_TABLE_FLAGS, flags)
	})
	if err != nil {
		return err
	}
	hook, err := t.hook(chain, unix.NF_INET_PRE_ROUTING)
	if err != nil {
		return err
	}
	return batch(t.c, []netlink.Message{table, hook})
}

// hook is the message that makes a chain of filters.
func (t *Table) hook(name string, num uint32) (netlink.Message, error) {
	return message(unix.NFT_MSG_NEWCHAIN, int(netlink.Create), unix.NFPROTO_INET, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_CHAIN_TABLE, t.name)
		ae.String(unix.NFTA_CHAIN_NAME, name)
		ae.String(unix.NFTA_CHAIN_TYPE, "filter")
		ae.Nested(unix.NFTA_CHAIN_HOOK, func(h *netlink.AttributeEncoder) error {
			h.Uint32(unix.NFTA_HOOK_HOOKNUM, num)
			h.Int32(unix.NFTA_HOOK_PRIORITY, last)
			return nil
		})
	})
}

// Set replaces all captures at once.
func (t *Table) Set(cs []Capture) error {
	if _, err := t.Renew(cs); err != nil {
		return err
	}
	return t.set(cs)
}

func (t *Table) set(cs []Capture) error {
	flush, err := message(unix.NFT_MSG_DELRULE, 0, unix.NFPROTO_INET, t.in(chain))
	if err != nil {
		return err
	}
	ms := []netlink.Message{flush}
	rules := untouched()
	for _, c := range cs {
		rules = append(rules, c.rule())
	}
	for _, r := range rules {
		m, err := t.rule(chain, r)
		if err != nil {
			return fmt.Errorf("encode capture: %w", err)
		}
		ms = append(ms, m)
	}
	if err := batch(t.c, ms); err != nil {
		return err
	}
	t.size = len(rules)
	return nil
}

// rule is the message that appends one to a chain.
func (t *Table) rule(to string, es []expr.Any) (netlink.Message, error) {
	var exprs [][]byte
	for _, e := range es {
		b, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			return netlink.Message{}, err
		}
		exprs = append(exprs, b)
	}
	return message(unix.NFT_MSG_NEWRULE, int(netlink.Create|netlink.Append), unix.NFPROTO_INET, func(ae *netlink.AttributeEncoder) {
		t.in(to)(ae)
		ae.Nested(unix.NFTA_RULE_EXPRESSIONS, func(list *netlink.AttributeEncoder) error {
			for _, b := range exprs {
				list.Bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, b)
			}
			return nil
		})
	})
}

// Renew makes the table again, with the captures cs, if somebody inside deleted or
// emptied it, and reports whether it had to. Nobody can do that to an owned one.
func (t *Table) Renew(cs []Capture) (bool, error) {
	if t.Owned {
		return false, nil
	}
	n, err := t.rules()
	if err != nil || n == t.size+t.fixed {
		return false, err
	}
	del, err := message(unix.NFT_MSG_DELTABLE, 0, unix.NFPROTO_INET, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_TABLE_NAME, t.name)
	})
	if err != nil {
		return false, err
	}
	if err := batch(t.c, []netlink.Message{del}); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("remove what is left of table %s: %w", t.name, err)
	}
	if err := t.create(); err != nil {
		return false, err
	}
	if t.fixed > 0 {
		err = t.boundNeighbors()
	}
	return true, errors.Join(err, t.set(cs))
}

// rules counts those that are there. A table that is not has none.
func (t *Table) rules() (int, error) {
	m, err := message(unix.NFT_MSG_GETRULE, int(netlink.Dump), unix.NFPROTO_INET, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_RULE_TABLE, t.name)
	})
	if err != nil {
		return 0, err
	}
	ms, err := t.ask(m)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("count rules of table %s: %w", t.name, err)
	}
	return len(ms), nil
}

// ask sends one question. The deadline of the last batch still stands.
func (t *Table) ask(m netlink.Message) ([]netlink.Message, error) {
	if err := t.c.SetDeadline(time.Now().Add(batchTime)); err != nil {
		return nil, err
	}
	ms, err := t.c.Execute(m)
	if err != nil {
		return nil, errno(err)
	}
	return ms, nil
}

// in names a chain to messages about its rules.
func (t *Table) in(name string) func(*netlink.AttributeEncoder) {
	return func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_RULE_TABLE, t.name)
		ae.String(unix.NFTA_RULE_CHAIN, name)
	}
}

// Close lets go of the table, which vanishes if it is owned.
func (t *Table) Close() error { return t.c.Close() }
