package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
)

// preflightGuard is what the host itself says. It is not one of the table's: a
// guard sees only facts that were recorded, and this answer is good for as long
// as nobody mounts, fills or protects anything. So it is asked where somebody
// decides whether to go on, and once more right before the trial.
const preflightGuard states.Guard = "preflight"

// preflight asks the host adapter for everything that would make the changes
// fail: what is immutable, read-only, mounted upon, too big. What the layer's own
// blockers name already is not said twice. Nil: the host can take them.
func (w *Workflow) preflight(ctx context.Context, p place, cs []change.Change, known []change.Blocker) (*guards.Refusal, error) {
	if w.Host == nil || len(cs) == 0 {
		return nil, nil
	}
	found, err := w.bounded(p).Preflight(ctx, cs)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil // apply, which asks again, says so
	}
	if err != nil {
		return nil, fmt.Errorf("preflight: %w", err)
	}
	found = slices.DeleteFunc(found, func(b change.Blocker) bool {
		return slices.ContainsFunc(known, func(k change.Blocker) bool { return k.Subject == b.Subject })
	})
	if len(found) == 0 {
		return nil, nil
	}
	r := &guards.Refusal{Guard: preflightGuard, Reason: "the host cannot take the change"}
	for _, b := range found {
		r.Subjects = append(r.Subjects, b.Subject+" ("+b.Reason+")")
		if r.Fix == "" {
			r.Fix = b.Fix
		}
	}
	if r.Fix == "" {
		r.Fix = without(p.env.Name, cs, found[0].Subject)
	}
	return r, nil
}

// without is the way on where nobody can make room for a change: the plan goes
// without it.
func without(env string, cs []change.Change, subject string) string {
	for _, c := range cs {
		if c.Path.String() == subject {
			return "netsandbox reset " + env + " " + change.Quote(string(c.Path))
		}
	}
	return "netsandbox changes " + env
}

// bounded is the host as far as an environment may touch it.
func (w *Workflow) bounded(p place) backends.Host {
	if b, ok := w.Host.(backends.Bounded); ok {
		return b.Within(p.spec.Base)
	}
	return w.Host
}

// refusals collects the answers that are no.
func refusals(rs []guards.Refusal, more ...*guards.Refusal) []guards.Refusal {
	for _, r := range more {
		if r != nil {
			rs = append(rs, *r)
		}
	}
	return rs
}
