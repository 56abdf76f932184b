package lanes

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Ensure makes again what somebody took away: routes that went with a link,
// rules that a network manager removed, places that a new rule of the host took.
// A lane that cannot be made again, because its interface is down, is fenced, and
// [Lanes.Lane] says why. What is known of the packet filter is asked anew.
func (l *Lanes) Ensure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts = nil
	if l.closed || len(l.lanes) == 0 {
		return nil
	}
	return l.ensure()
}

func (l *Lanes) ensure() error {
	for _, six := range []bool{false, true} {
		var errs []error
		some := false
		l.each(six, func(ln *lane) {
			some = true
			errs = append(errs, l.repair(ln))
		})
		if some {
			errs = append(errs, l.settle(six))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("ensure lanes: %w", err)
		}
	}
	l.checked = l.now()
	return nil
}

// repair looks after the routes of a lane and notes what is in its way.
func (l *Lanes) repair(ln *lane) error {
	ln.limit = nil
	routes, err := l.kernel.routes(ln.Six, ln.number)
	if err != nil {
		return err
	}
	missing := []route{fence(ln.number, ln.Six), laneRoute(ln.number, ln.Lane)}
	for _, r := range routes {
		i := slices.Index(missing, r)
		if i < 0 {
			ln.limit = l.limit(way.Route, ln.Lane, "somebody else has a route in its table")
			return nil
		}
		missing = slices.Delete(missing, i, i+1)
	}
	for _, r := range missing {
		if err := l.kernel.addRoute(r); err != nil && !errors.Is(err, unix.EEXIST) {
			err = l.refused(ln.Lane, err)
			if !errors.As(err, &ln.limit) {
				return err
			}
		}
	}
	return nil
}
