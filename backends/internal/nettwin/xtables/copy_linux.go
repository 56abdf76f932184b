package xtables

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/userns"
)

// Load makes tables that were read in another namespace in the namespace ns.
// Whatever the kernel does not take is named in the notes.
func Load(ns int, ts []*Table) (notes []string, err error) {
	for _, b := range bridged() {
		notes = append(notes, fmt.Sprintf("rules of ebtables-legacy in table %s are not in the twin, if there are any", b))
	}
	for _, t := range ts {
		if t.pristine() {
			continue
		}
		part, gone := t.without()
		for r, n := range tally(gone) {
			notes = append(notes, fmt.Sprintf("rules of %s-legacy with %s in chain %s %s are not in the twin: %d of them",
				t.family.tool, r.reference, t.name, r.chain, n))
		}
		if err := part.load(ns); err != nil {
			notes = append(notes, fmt.Sprintf("table %s of %s-legacy is not in the twin: %v", t.name, t.family.tool, err))
		}
	}
	slices.Sort(notes)
	return notes, nil
}

func tally(rs []refused) map[refused]int {
	n := map[refused]int{}
	for _, r := range rs {
		n[r]++
	}
	return n
}

func (t *Table) load(ns int) error {
	owner, err := t.owner(ns)
	if err != nil {
		return err
	}
	if owner != nil {
		defer owner.Close()
	}
	return netns.Do(ns, func() error {
		return t.family.withSocket(func(fd int) error {
			// The kernel makes the table when it is asked for.
			was, _, err := t.family.info(fd, t.name)
			if err != nil {
				return err
			}
			if err := t.replace(fd, owner, was.count); err != nil {
				return err
			}
			return t.addCounters(fd)
		})
	})
}

// owner is who must replace the table: the owner match is taken from nobody
// outside the user namespace that the network namespace is of.
func (t *Table) owner(ns int) (*os.File, error) {
	for e := range t.walk() {
		for m := range e.matches() {
			if m.Name == "owner" {
				return userns.Foreign(ns)
			}
		}
	}
	return nil, nil
}

// Clear makes every table of the namespace ns as it is in a new one.
func Clear(ns int) error {
	return each(ns, func(f *family, fd int) error {
		names, err := f.tables()
		if err != nil {
			return err
		}
		for _, name := range names {
			was, _, err := f.info(fd, name)
			if err == nil {
				err = was.fresh().replace(fd, nil, was.count)
			}
			if err != nil {
				return fmt.Errorf("clear table %s of %s: %w", name, f.tool, err)
			}
		}
		return nil
	})
}

// fresh is the table with the policies of a new one and nothing else.
func (t *Table) fresh() *Table {
	n := &Table{family: t.family, name: t.name, valid: t.valid, hook: make([]uint32, len(t.hook)), underflow: make([]uint32, len(t.hook))}
	for i := range t.hook {
		if t.valid&(1<<i) != 0 {
			n.hook[i], n.underflow[i] = uint32(len(n.entries)), uint32(len(n.entries))
			accept := make([]byte, standardSize-targetHeader)
			binary.NativeEndian.PutUint32(accept, ^uint32(1)) // -NF_ACCEPT - 1
			n.append("", accept)
		}
	}
	name := make([]byte, errorSize-targetHeader)
	copy(name, "ERROR")
	n.append("ERROR", name)
	return n
}

// append adds an entry for every packet.
func (t *Table) append(target string, data []byte) {
	e := make([]byte, t.family.head+targetHeader, t.family.head+targetHeader+len(data))
	binary.NativeEndian.PutUint16(e[t.family.offsets:], uint16(t.family.head))
	binary.NativeEndian.PutUint16(e[t.family.offsets+2:], uint16(t.family.head+targetHeader+len(data)))
	x := e[t.family.head:]
	binary.NativeEndian.PutUint16(x, uint16(targetHeader+len(data)))
	copy(x[2:], target)
	t.entries = append(t.entries, append(e, data...)...)
	t.count++
}
