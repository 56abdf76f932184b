package lanes

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

const admissions = 256 // open at once, of one environment

// admission is a flow whose answers are let in by a rule.
type admission struct {
	lane *lane
	n    int // times that it was asked for
}

// Admit lets the answers to a flow in where the host's reverse path filter would
// drop them, with a rule that matches this flow and no other. Where they are let
// in anyway it makes none.
//
// Only TCP and UDP have ports to tell their packets from those of others, so
// anything else that a filter drops stays dropped, and is a limit.
func (l *Lanes) Admit(f way.Flow) error {
	f = exact(f)
	var err error
	if f.Lane, err = normal(f.Lane); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.connect(); err != nil {
		return err
	}
	if a := l.admits[f]; a != nil {
		a.n++
		return nil
	}
	by, help, err := l.dropped(f)
	if err != nil || by == "" {
		return err
	}
	if !help || !ported(f.Proto) || f.Src.Port() == 0 || f.Dst.Port() == 0 {
		reason := "answers arrive on another interface than the host expects, and " + by
		if help {
			reason += "; only a flow with ports can be let in"
		}
		return l.limit(way.ReversePath, f.Lane, reason)
	}
	if len(l.admits) >= admissions {
		return l.limit(way.Load, f.Lane, fmt.Sprintf("%d flows with answers on another interface are open", admissions))
	}
	return l.admit(f)
}

func (l *Lanes) admit(f way.Flow) error {
	ln, err := l.lane(f.Lane)
	if err != nil {
		return err
	}
	err = l.kernel.addRule(flowRule(l.pref[ln.Six], ln.number, f))
	if errors.Is(err, unix.EEXIST) {
		return l.limit(way.ReversePath, f.Lane, "somebody else has a rule for this flow")
	}
	if err != nil {
		return fmt.Errorf("admit answers by lane %s: %w", l.kernel.subject(f.Lane), err)
	}
	l.admits[f] = &admission{ln, 1}
	ln.open++
	return nil
}

// Holds implements [way.Holder].
func (l *Lanes) Holds(f way.Flow) bool {
	f = exact(f)
	f.Lane, _ = normal(f.Lane)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.admits[f] != nil
}

// Release takes back what Admit made. A flow that needed nothing has nothing. A
// rule that cannot be removed now is no longer wanted and goes with the next
// Ensure, or with Close.
func (l *Lanes) Release(f way.Flow) {
	f = exact(f)
	f.Lane, _ = normal(f.Lane) // what Admit refused was not admitted
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.admits[f]
	if a == nil || l.closed {
		return
	}
	if a.n--; a.n > 0 {
		return
	}
	delete(l.admits, f)
	a.lane.open--
	_ = l.kernel.removeRule(flowRule(l.pref[a.lane.Six], a.lane.number, f)) // see above
}

var _ way.Holder = (*Lanes)(nil)
