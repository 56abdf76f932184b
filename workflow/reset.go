package workflow

import (
	"context"
	"errors"
	"fmt"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// ResetOptions say what to drop.
type ResetOptions struct {
	Paths   []string
	All     bool
	Network bool
	Stop    bool
}

// Reset drops experimental changes. It refuses while processes live in the view
// unless Stop: their open files would go on writing into nothing.
func (w *Workflow) Reset(ctx context.Context, name string, o ResetOptions) (report.Moved, error) {
	var doc report.Moved
	if len(o.Paths) == 0 && !o.All && !o.Network {
		return doc, fmt.Errorf("%w: name a PATH, or --all, or --network", ErrUsage)
	}
	err := again(ctx, func() error {
		p, err := w.enter(ctx, name)
		if err != nil {
			return err
		}
		unlock, err := w.lock(p, execlog.Exclusive)
		if err != nil {
			return err
		}
		defer unlock()
		r := backends.Reset{All: o.All, Network: o.Network, Stop: o.Stop}
		for _, path := range o.Paths {
			abs, err := resolvePath(p.spec.Base, path)
			if err != nil {
				return err
			}
			r.Paths = append(r.Paths, abs)
		}
		doc, err = w.reset(ctx, &p, r)
		return err
	})
	return doc, err
}

func (w *Workflow) reset(ctx context.Context, p *place, r backends.Reset) (report.Moved, error) {
	doc := report.Moved{Schema: report.Schema("moved"), Name: p.env.Name, On: states.Reset, From: p.env.State, To: p.env.State}
	f := guards.Facts{Env: p.env.Name, State: p.env.State}
	st, err := p.view.Status(ctx)
	if err != nil {
		return doc, err
	}
	if !r.Stop {
		f.Processes, f.Drop = processes(st), arguments(r)
	}
	if _, _, err := decide(ctx, f, states.Reset); err != nil {
		return doc, w.recordRefusal(ctx, *p, err)
	}
	if err := p.view.Reset(ctx, r); err != nil {
		return doc, fmt.Errorf("reset %s: %w", p.env.Name, err)
	}
	left, err := w.read(ctx, *p)
	if err != nil {
		return doc, err
	}
	on := states.Reset
	if len(left.Changes)+len(left.Blockers) > 0 {
		on = states.ResetPartly
	}
	m, err := w.do(ctx, p, move{on: on, facts: guards.Facts{}, with: func(tx *journal.Tx, env *journal.Env, _ states.State) error {
		env.Layer = left.digest
		if err := tx.RevokeGrants(env.ID, "the layer was reset"); err != nil {
			return err
		}
		return w.event(tx, env.ID, "", EventLayerReset, map[string]any{
			"paths": r.Paths, "all": r.All, "network": r.Network, "left": len(left.Changes),
		})
	}})
	doc.To = m.to
	return doc, err
}

// arguments are those of the reset that was asked for, so that what ends the
// processes drops no more than that.
func arguments(r backends.Reset) (out []string) {
	for _, p := range r.Paths {
		out = append(out, p.String())
	}
	if r.All {
		out = append(out, "--all", "--yes")
	}
	if r.Network {
		out = append(out, "--network")
	}
	return out
}

// recordRefusal keeps a refusal that was found outside a journal transaction.
func (w *Workflow) recordRefusal(ctx context.Context, p place, err error) error {
	var r *RefusedError
	if !errors.As(err, &r) {
		return err
	}
	if e := w.store.Update(ctx, func(tx *journal.Tx) error { return w.refuse(tx, p.env, r, "") }); e != nil {
		return errors.Join(err, e)
	}
	return err
}
