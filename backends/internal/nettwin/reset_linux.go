package nettwin

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/xtables"
)

// Reset throws away everything that the inside changed and mirrors the host's
// network as it is now, in the same namespace: processes that live there keep
// it. Their connections are cut. On error the twin has no way out, and another
// Reset is the only thing to do with it but Close.
func (t *Twin) Reset(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ns == nil {
		return errors.New("reset network: twin is closed")
	}
	if err := errors.Join(t.release(), wipe(int(t.ns.Fd()))); err != nil {
		return fmt.Errorf("reset network: %w", err)
	}
	if err := t.build(ctx); err != nil {
		return errors.Join(fmt.Errorf("reset network: %w", err), t.release())
	}
	return nil
}

// wipe makes a namespace as good as new. What cannot be removed is a link that
// the kernel itself put there; the mirror takes it over.
func wipe(ns int) error {
	if err := errors.Join(nft.Flush(ns), xtables.Clear(ns)); err != nil {
		return err
	}
	c, err := rtnl.Dial(ns)
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := observe(ns)
	if err != nil {
		return err
	}
	for _, l := range n.links {
		if l.Loopback() {
			continue
		}
		err := c.DeleteLink(l.Index)
		// The far end of a pair goes with the near one.
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("delete link %s: %w", l.Name, err)
		}
	}
	for i, m := range n.nexthops {
		n.nexthops[i] = rtnl.NexthopDeletion(m)
	}
	return errors.Join(
		plainRules(c),
		flushRoutes(c),
		remove(c, unix.RTM_DELADDR, n.addresses, "address"),
		remove(c, unix.RTM_DELNEXTHOP, n.nexthops, "nexthop"),
		remove(c, unix.RTM_DELNEIGH, n.neighbors, "neighbour"),
		clearQdiscs(c, n),
		clearIPsec(ns),
	)
}

// plainRules leaves the rules that a new namespace has. Routes are replayed before
// rules, and the kernel looks a gateway up through the rules that stand: one
// blackhole refuses every route.
func plainRules(c *rtnl.Conn) error {
	wanted := map[string][]byte{}
	for _, r := range []struct {
		af   byte
		pref uint32
		tab  byte
	}{
		{unix.AF_INET, 0, unix.RT_TABLE_LOCAL},
		{unix.AF_INET, 32766, unix.RT_TABLE_MAIN},
		{unix.AF_INET, 32767, unix.RT_TABLE_DEFAULT},
		{unix.AF_INET6, 0, unix.RT_TABLE_LOCAL},
		{unix.AF_INET6, 32766, unix.RT_TABLE_MAIN},
	} {
		m := rtnl.PlainRule(r.af, r.pref, r.tab)
		wanted[rtnl.RuleText(m)] = m
	}
	have, err := dumpRules(c)
	if err != nil {
		return err
	}
	for _, m := range have {
		k := rtnl.RuleText(m)
		if wanted[k] != nil {
			continue
		}
		if err := c.Do(unix.RTM_DELRULE, 0, rtnl.RuleDeletion(m)); err != nil {
			return fmt.Errorf("delete rule %s: %w", k, err)
		}
	}
	for k, m := range wanted {
		err := c.Do(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, m)
		// EAFNOSUPPORT: a kernel without IPv6.
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("add rule %s: %w", k, err)
		}
	}
	return nil
}

// remove deletes what was dumped, as far as the links did not take it along.
func remove(c *rtnl.Conn, typ uint16, msgs [][]byte, what string) error {
	for i, err := range c.Batch(typ, 0, msgs) {
		switch {
		case err == nil, errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH), errors.Is(err, unix.EADDRNOTAVAIL):
		default:
			return fmt.Errorf("delete %s %x: %w", what, msgs[i], err)
		}
	}
	return nil
}

// clearIPsec removes policies and associations. A kernel may know of none.
func clearIPsec(ns int) error {
	c, err := rtnl.DialXfrm(ns)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	return c.FlushXfrm()
}

// clearQdiscs resets lo, the one link that stays.
func clearQdiscs(c *rtnl.Conn, n *network) error {
	lo := n.byName("lo")
	var own [][]byte
	for _, m := range n.qdiscs {
		if rtnl.QdiscLink(m) == lo && rtnl.QdiscSet(m) {
			own = append(own, m[:rtnl.SizeofTcmsg])
		}
	}
	return remove(c, unix.RTM_DELQDISC, own, "queueing discipline")
}
