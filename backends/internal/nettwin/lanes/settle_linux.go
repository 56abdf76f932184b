package lanes

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// settle makes the rules of a family what they should be, where they should be,
// and looks again until nothing was to do: somebody may add a rule at the same
// time. The new rule is made before the old one goes.
func (l *Lanes) settle(six bool) error {
	const rounds = 5
	for range rounds {
		rules, err := l.kernel.rules(six)
		if err != nil {
			return err
		}
		pref, ok := place(rules, l.numbers(six))
		if !ok {
			l.each(six, func(ln *lane) { ln.limit = l.noPlace(ln.Lane) })
			return nil
		}
		changed, err := l.arrange(six, pref, rules)
		if err != nil || !changed {
			return err
		}
	}
	return fmt.Errorf("settle rules of lanes: they change all the time: %w", unix.EAGAIN)
}

func (l *Lanes) each(six bool, f func(*lane)) {
	for _, ln := range l.lanes {
		if ln.Six == six {
			f(ln)
		}
	}
}

func (l *Lanes) numbers(six bool) []uint32 {
	var ns []uint32
	l.each(six, func(ln *lane) { ns = append(ns, ln.number) })
	return ns
}

// wanted are the rules of a family, and what lane each is for.
func (l *Lanes) wanted(six bool, pref uint32) map[rule]*lane {
	want := map[rule]*lane{}
	l.each(six, func(ln *lane) { want[laneRule(pref, ln.number, six)] = ln })
	for f, a := range l.admits {
		if f.Src.Addr().Is6() == six {
			want[flowRule(pref, a.lane.number, f)] = a.lane
		}
	}
	return want
}

// arrange adds what is missing and removes what is not wanted of our block.
func (l *Lanes) arrange(six bool, pref uint32, rules []rule) (changed bool, err error) {
	want := l.wanted(six, pref)
	var old []rule
	for _, r := range rules {
		if b, ok := r.ours(); !ok || b != l.claim.block {
			continue
		}
		if _, ok := want[r]; ok {
			delete(want, r)
		} else {
			old = append(old, r)
		}
	}
	for r, ln := range want {
		if err := l.kernel.addRule(r); err != nil {
			if err := l.cannotAdd(ln, err); err != nil {
				return changed, err
			}
			continue
		}
		changed = true
	}
	l.pref[six] = pref
	for _, r := range old {
		if err := l.kernel.removeRule(r); err != nil {
			return changed, fmt.Errorf("remove rule: %w", err)
		}
		changed = true
	}
	return changed, nil
}

// cannotAdd notes what kept a rule from being made, where that is a limit.
func (l *Lanes) cannotAdd(ln *lane, err error) error {
	switch {
	case errors.Is(err, unix.EEXIST):
		// The same rule with another protocol number: the kernel does not compare it.
		ln.limit = l.limit(way.Route, ln.Lane, "somebody else has a rule for its mark")
	case rtnl.NoFamily(err):
		ln.limit = l.limit(way.Route, ln.Lane, "the host has no "+version(ln.Six))
	default:
		return fmt.Errorf("add rule: %w", err)
	}
	return nil
}
