package lanes

import (
	"slices"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// taken is what of the host's uses numbers.
type taken struct {
	marks  []Mark
	tables map[uint32]bool // that rules lead into
}

// taken reads it: rules of both families, and the packet filter's marks.
func (l *Lanes) taken() (taken, error) {
	facts, err := l.known()
	if err != nil {
		return taken{}, err
	}
	t := taken{slices.Clone(facts.marks), map[uint32]bool{}}
	for _, six := range []bool{false, true} {
		rules, err := l.kernel.rules(six)
		if err != nil {
			return taken{}, err
		}
		t.add(rules)
	}
	return t, nil
}

func (t *taken) add(rules []rule) {
	for _, r := range rules {
		if _, ok := r.ours(); ok {
			continue
		}
		t.tables[r.table] = true
		if r.mark.Mask != 0 {
			t.marks = append(t.marks, r.mark)
		}
	}
}

func (t taken) has(n uint32) bool {
	return t.tables[n] || slices.ContainsFunc(t.marks, func(m Mark) bool { return m.clashes(n) })
}

// free counts the numbers of a block that nobody else uses.
func (t taken) free(b block) int {
	count := 0
	for hop := range hops {
		if !t.has(b.number(hop)) {
			count++
		}
	}
	return count
}

// unused reports whether a number is neither the host's nor of a lane that we
// have, and its table is empty.
func (l *Lanes) unused(n uint32, six bool, t taken) (bool, error) {
	if t.has(n) {
		return false, nil
	}
	for _, ln := range l.lanes {
		if ln.number == n {
			return false, nil
		}
	}
	routes, err := l.kernel.routes(six, n)
	return len(routes) == 0, err
}

// known is what the packet filter was found to do since the last Ensure.
func (l *Lanes) known() (*facts, error) {
	if l.facts != nil {
		return l.facts, nil
	}
	f := &facts{}
	var err error
	if l.opt.Marks != nil {
		if f.marks, err = l.opt.Marks(); err != nil {
			return nil, err
		}
	}
	if l.opt.Filters != nil {
		if f.filters, err = l.opt.Filters(); err != nil {
			return nil, err
		}
	}
	l.facts = f
	return f, nil
}

// place returns the preference with which our rules are asked before every rule
// of the host that could take one of our packets. A rule is put behind those of
// its preference, so it has to be smaller. With 0 it stands behind the rule of
// the local table, which is right. False: there is no such place.
func place(rules []rule, numbers []uint32) (uint32, bool) {
	pref := uint32(firstPref)
	for _, r := range rules {
		if r.pref > pref || r.local() {
			continue
		}
		if _, ok := r.ours(); ok || !slices.ContainsFunc(numbers, r.takes) {
			continue
		}
		if r.pref == 0 {
			return 0, false
		}
		pref = r.pref - 1
	}
	return pref, true
}

func (l *Lanes) noPlace(w way.Lane) *way.Limit {
	return l.limit(way.Route, w, "a rule of the host comes before every place for ours")
}
