package nettwin

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// port is one mirrored interface.
type port struct {
	host  rtnl.Link
	index int      // in the twin
	mac   []byte   // in the twin
	tap   *os.File // nil when the kernel made the link (lo, tunl0, …)
}

// replica fills a namespace with what another has. It is used once.
type replica struct {
	ns     int
	host   *network
	conn   *rtnl.Conn
	ports  []port
	toTwin rtnl.IndexMap
	notes  []string
	shift  rtnl.Shift
	static map[int][]relay.NextHop // by the twin's number of the link
}

// note remembers what the twin could not be given, in words that are safe to
// print: the kernel takes names with control bytes.
func (r *replica) note(format string, args ...any) {
	r.notes = append(r.notes, change.Escape(fmt.Sprintf(format, args...)))
}

// build makes links, addresses, routes and rules in that order: each needs what
// stands before it.
func (r *replica) build() error {
	var err error
	if r.conn, err = rtnl.Dial(r.ns); err != nil {
		return err
	}
	defer r.conn.Close()
	for _, step := range []func() error{r.addLinks, r.setSysctls, r.raiseLinks, r.setLabels, r.addAddresses, r.addRoutes, r.setRules, r.addNeighbors} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// setLabels replaces the labels that a new namespace has by the host's.
func (r *replica) setLabels() error {
	typ, head := rtnl.Labels()
	made, err := r.conn.Dump(typ, head)
	if err != nil {
		return fmt.Errorf("list address labels of twin: %w", err)
	}
	wanted := map[string]bool{}
	for _, m := range r.host.labels {
		b, ok := rtnl.Label(m, r.toTwin)
		wanted[string(b)] = ok
	}
	for _, m := range made {
		b, _ := rtnl.Label(m, r.toTwin)
		if wanted[string(b)] {
			delete(wanted, string(b))
			continue
		}
		if err := r.conn.Do(unix.RTM_DELADDRLABEL, 0, b); err != nil {
			return fmt.Errorf("delete address label: %w", err)
		}
	}
	for b, ok := range wanted {
		if !ok {
			continue
		}
		if err := r.conn.Do(unix.RTM_NEWADDRLABEL, unix.NLM_F_CREATE|unix.NLM_F_EXCL, []byte(b)); err != nil {
			return fmt.Errorf("add address label: %w", err)
		}
	}
	return nil
}

// addAddresses keeps their order, for the first of equals is the source of what
// does not choose: IPv4 adds at the end, IPv6 at the head.
func (r *replica) addAddresses() error {
	list := slices.Clone(r.host.addresses)
	slices.Reverse(list)
	slices.SortStableFunc(list, func(a, b []byte) int { return cmp.Compare(b[0], a[0]) })
	if i := slices.IndexFunc(list, func(m []byte) bool { return m[0] == unix.AF_INET }); i >= 0 {
		slices.Reverse(list[i:])
	}
	for _, m := range list {
		b, ok := rtnl.Address(m, r.toTwin)
		if !ok {
			continue
		}
		err := r.conn.Do(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add address %s: %w", rtnl.AddressText(m, r.host.name), err)
		}
	}
	return nil
}
