package nft

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// Raw is a whole ruleset as the kernel dumps it, in the kernel's order.
type Raw struct{ tables []*rawTable }

// rawTable is one table and all that is in it.
type rawTable struct {
	object
	name       string
	chains     []object
	objects    []object
	sets       []rawSet
	flowtables []object
	rules      map[string][]object // by chain
}

// rawSet is a set or map and the values of its elements.
type rawSet struct {
	object
	name     string
	elements [][]byte
}

func (t *rawTable) String() string { return familyName(t.family) + " " + t.name }

// Remove takes a table ("inet filter") out and reports whether it was there.
func (r *Raw) Remove(table string) bool {
	n := len(r.tables)
	r.tables = slices.DeleteFunc(r.tables, func(t *rawTable) bool { return t.String() == table })
	return len(r.tables) < n
}

// set finds a set by name.
func (t *rawTable) set(name string) *rawSet {
	for i := range t.sets {
		if t.sets[i].name == name {
			return &t.sets[i]
		}
	}
	return nil
}

// Read dumps the ruleset of the namespace ns. A kernel without nf_tables has
// none: it lacks the protocol, or nobody answers for the subsystem.
func Read(ns int) (*Raw, error) {
	s, err := open(ns)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return &Raw{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if _, err := s.generation(); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return &Raw{}, nil
	}
	var r *Raw
	// The dumps are no transaction. One that somebody commits between two of them
	// is seen by its number; on a host that changes all the time the last stands.
	for range 5 {
		var before, after uint32
		if before, err = s.generation(); err == nil {
			r, err = s.read()
		}
		if err == nil {
			after, err = s.generation()
		}
		if err == nil && before == after {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read nftables ruleset: %w", err)
	}
	return r, nil
}

func (s *socket) read() (*Raw, error) {
	r := &Raw{}
	byName := map[string]*rawTable{}
	os, err := s.dump(unix.NFT_MSG_GETTABLE, unix.NFPROTO_UNSPEC, nil)
	if err != nil {
		return nil, err
	}
	for _, o := range os {
		t := &rawTable{object: o, name: o.str(unix.NFTA_TABLE_NAME), rules: map[string][]object{}}
		r.tables = append(r.tables, t)
		byName[t.String()] = t
	}
	if len(r.tables) == 0 {
		return r, nil
	}
	for _, d := range []struct {
		typ uint16
		put func(*rawTable, object)
	}{
		{unix.NFT_MSG_GETCHAIN, func(t *rawTable, o object) { t.chains = append(t.chains, o) }},
		{unix.NFT_MSG_GETOBJ, func(t *rawTable, o object) { t.objects = append(t.objects, o) }},
		{unix.NFT_MSG_GETSET, func(t *rawTable, o object) {
			t.sets = append(t.sets, rawSet{object: o, name: o.str(unix.NFTA_SET_NAME)})
		}},
		{unix.NFT_MSG_GETFLOWTABLE, func(t *rawTable, o object) { t.flowtables = append(t.flowtables, o) }},
		{unix.NFT_MSG_GETRULE, func(t *rawTable, o object) {
			chain := o.str(unix.NFTA_RULE_CHAIN)
			t.rules[chain] = append(t.rules[chain], o)
		}},
	} {
		os, err := s.dump(d.typ, unix.NFPROTO_UNSPEC, nil)
		if errors.Is(err, unix.EOPNOTSUPP) {
			continue // no flowtables in this kernel
		}
		if err != nil {
			return nil, err
		}
		for _, o := range os {
			if t := byName[o.in(inTable)]; t != nil {
				d.put(t, o)
			}
		}
	}
	for _, t := range r.tables {
		for i := range t.sets {
			if t.sets[i].elements, err = s.elements(t.sets[i].object); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// inTable is the attribute that names the table in all objects but tables:
// NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, NFTA_SET_TABLE, …
const inTable = 1

// elements returns the value of each element of a set.
func (s *socket) elements(set object) ([][]byte, error) {
	var q []byte
	q = rtnl.AppendString(q, unix.NFTA_SET_ELEM_LIST_TABLE, set.str(unix.NFTA_SET_TABLE))
	q = rtnl.AppendString(q, unix.NFTA_SET_ELEM_LIST_SET, set.str(unix.NFTA_SET_NAME))
	os, err := s.dump(unix.NFT_MSG_GETSETELEM, set.family, q)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // the set went away meanwhile
	}
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, o := range os {
		for e := range rtnl.Attrs(rtnl.Find(o.attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			out = append(out, e.Value)
		}
	}
	return out, nil
}
