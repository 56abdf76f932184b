package nettwin

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/xtables"
)

// snapshot is the state of the twin in words: kind, identity, values. Most
// identities have one value; routes may share prefix, table and metric.
type snapshot map[Kind]map[string][]string

func (s snapshot) add(k Kind, key, value string) {
	if s[k] == nil {
		s[k] = map[string][]string{}
	}
	if value == "" {
		value = present
	}
	s[k][key] = append(s[k][key], value)
}

// record reads the twin's state from inside.
func (t *Twin) record() (snapshot, error) {
	n, err := observe(int(t.ns.Fd()))
	if err != nil {
		return nil, err
	}
	for i, m := range n.rules {
		n.rules[i] = t.shift().Out(m)
	}
	s := snapshot{}
	n.describe(s)
	for _, m := range n.routes {
		if left, ok := rtnl.Expires(m); ok {
			s.add(kindEnd, rtnl.RouteText(m, n.name), strconv.FormatInt(int64(uptime()+left), 10))
		}
	}
	var own *nft.Table
	if t.loop != nil {
		own = t.loop.table
	}
	asked := uptime() // what has a lifetime may end while we read
	items, err := nft.Ruleset(int(t.ns.Fd()), own)
	if err != nil {
		return nil, err
	}
	for _, i := range items {
		s.add(KindNFT, i.Key, i.Text)
		if i.Left > 0 {
			s.add(kindEnd, i.Key+" "+i.Text, strconv.FormatInt(int64(asked+i.Left), 10))
		}
	}
	chains, err := xtables.Chains(int(t.ns.Fd()))
	if err != nil {
		return nil, err
	}
	for _, i := range chains {
		s.add(KindXtables, i.Key, i.Text)
	}
	return s, nil
}

// kindEnd is when routes and elements of sets with a lifetime end, by [uptime].
// It is no difference.
const kindEnd Kind = "end"

// uptime is the clock that the kernel's timers go by.
func uptime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // has one on every kernel
	return time.Duration(ts.Nano())
}

// ended reports a route or element of s that is gone because its time was up.
func (s snapshot) ended(d Difference) bool {
	if d.Kind != KindRoute && d.Kind != KindNFT || d.Now != "" {
		return false
	}
	at := s[kindEnd][d.Key+" "+d.Was]
	if len(at) == 0 {
		return false
	}
	end, err := strconv.ParseInt(at[0], 10, 64)
	// The kernel's garbage collector is not punctual, but it is never early.
	return err == nil && int64(uptime()) >= end
}

// shift is how the ids of users inside lie in the kernel's.
func (t *Twin) shift() rtnl.Shift {
	if t.opt.IDShift == 0 {
		return rtnl.Shift{}
	}
	return rtnl.Shift{Base: t.opt.IDShift, Size: math.MaxInt32} // 2^32−1 is nobody
}

// describe puts everything but packet filters into words.
func (n *network) describe(s snapshot) {
	for _, l := range n.links {
		s.add(KindLink, l.Name, linkText(l, n))
	}
	for _, d := range []struct {
		kind Kind
		msgs [][]byte
		key  func([]byte, rtnl.Names) (key, rest string)
	}{
		{KindAddress, n.addresses, rtnl.AddressKey},
		{KindLabel, n.labels, rtnl.LabelKey},
		{KindNexthop, n.nexthops, rtnl.NexthopKey},
		{KindRoute, n.routes, rtnl.RouteKey},
		{KindNeighbor, n.neighbors, rtnl.NeighborKey},
		{KindQdisc, n.qdiscs, rtnl.QdiscKey},
	} {
		for _, m := range d.msgs {
			key, rest := d.key(m, n.name)
			s.add(d.kind, key, rest)
		}
	}
	for _, m := range n.rules {
		s.add(KindRule, rtnl.RuleText(m), "")
	}
	for _, m := range n.policies {
		key, rest := rtnl.PolicyKey(m)
		s.add(KindIPsec, key, rest)
	}
	for _, m := range n.states {
		key, rest := rtnl.AssociationKey(m)
		s.add(KindIPsec, key, rest)
	}
	for k, v := range n.sysctls {
		if !n.follows(k, v) {
			s.add(KindSysctl, dotted(k), v)
		}
	}
}

// follows reports a sysctl that says what the link says already: the MTU of IPv6
// is the link's until somebody lowers it.
func (n *network) follows(name, value string) bool {
	link, ok := strings.CutPrefix(name, "ipv6/conf/")
	if !ok {
		return false
	}
	link, ok = strings.CutSuffix(link, "/mtu")
	return ok && slices.ContainsFunc(n.links, func(l rtnl.Link) bool { return l.Name == link && strconv.Itoa(int(l.MTU)) == value })
}

// Difference says what the inside changed since the twin was made, by kind and
// identity.
func (t *Twin) Difference() ([]Difference, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.baseline == nil {
		return nil, errors.New("compare network: no baseline was recorded")
	}
	now, err := t.record()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(t.baseline.difference(now), t.baseline.ended), nil
}

func (s snapshot) difference(now snapshot) []Difference {
	var ds []Difference
	for _, k := range kinds {
		keys := map[string]bool{}
		for key := range s[k] {
			keys[key] = true
		}
		for key := range now[k] {
			keys[key] = true
		}
		var part []Difference
		for key := range keys {
			if k == KindSysctl && s.cameOrWent(now, sysctlLink(key)) {
				continue
			}
			part = append(part, pair(k, key, s[k][key], now[k][key])...)
		}
		slices.SortFunc(part, compare)
		ds = append(ds, part...)
	}
	return ds
}

func compare(a, b Difference) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Was, b.Was), cmp.Compare(a.Now, b.Now))
}

// cameOrWent reports a link that only one of the two has. A hundred sysctls come
// and go with it, and say nothing that its own line does not.
func (s snapshot) cameOrWent(now snapshot, link string) bool {
	_, was := s[KindLink][link]
	_, is := now[KindLink][link]
	return was != is
}

// pair matches the values that went with those that came.
func pair(k Kind, key string, was, now []string) []Difference {
	gone, come := without(was, now), without(now, was)
	var ds []Difference
	for i := range max(len(gone), len(come)) {
		d := Difference{Kind: k, Key: key}
		if i < len(gone) {
			d.Was = gone[i]
		}
		if i < len(come) {
			d.Now = come[i]
		}
		ds = append(ds, d)
	}
	return ds
}

// without is the multiset a less b, sorted.
func without(a, b []string) []string {
	left := map[string]int{}
	for _, v := range b {
		left[v]++
	}
	var out []string
	for _, v := range slices.Sorted(slices.Values(a)) {
		if left[v] > 0 {
			left[v]--
			continue
		}
		out = append(out, v)
	}
	return out
}
