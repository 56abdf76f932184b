package lanes

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// make makes a lane: fence, route, rule.
func (l *Lanes) make(w way.Lane) (*lane, error) {
	if err := l.room(w); err != nil {
		return nil, err
	}
	taken, err := l.taken()
	if err != nil {
		return nil, err
	}
	for range hops {
		n := l.claim.block.number(l.hop)
		l.hop = (l.hop + 1) % hops
		free, err := l.unused(n, w.Six, taken)
		if err != nil {
			return nil, err
		}
		if !free {
			continue
		}
		ln, err := l.lay(w, n)
		if errors.Is(err, unix.EEXIST) { // between our look and our step
			continue
		}
		return ln, err
	}
	return nil, l.limit(way.Load, w, "no mark is free on the host")
}

// lay makes the objects of a lane, or none.
func (l *Lanes) lay(w way.Lane, n uint32) (*lane, error) {
	k := l.kernel
	if err := k.addRoute(fence(n, w.Six)); err != nil {
		return nil, l.refused(w, err)
	}
	if err := k.addRoute(laneRoute(n, w)); err != nil {
		return nil, after(l.refused(w, err), k.removeRoute(fence(n, w.Six)))
	}
	ln := &lane{Lane: w, number: n, used: l.now()}
	l.lanes[w] = ln
	err := l.settle(w.Six)
	if err == nil && ln.limit != nil {
		err = ln.limit
	}
	if err != nil {
		return nil, after(err, l.unmake(ln))
	}
	return ln, nil
}

// after joins an error and what its undo met. Without the latter it stays the
// limit that it may be.
func after(err, undo error) error {
	if undo == nil {
		return err
	}
	return errors.Join(err, undo)
}

// unmake removes a lane, the rule first.
func (l *Lanes) unmake(ln *lane) error {
	k := l.kernel
	delete(l.lanes, ln.Lane)
	pref, known := l.pref[ln.Six]
	if known {
		if err := k.removeRule(laneRule(pref, ln.number, ln.Six)); err != nil {
			return fmt.Errorf("remove rule of a lane: %w", err)
		}
	}
	return errors.Join(k.removeRoute(laneRoute(ln.number, ln.Lane)), k.removeRoute(fence(ln.number, ln.Six)))
}
