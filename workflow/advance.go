package workflow

import (
	"context"
	"fmt"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// AdvanceOptions say how far to go.
type AdvanceOptions struct {
	To  states.State // empty: one step
	Yes bool         // gives authority where the next step needs it
	ApplyOptions
}

// Advance does the one next step, or all up to a state, and stops at the first
// guard that refuses.
func (w *Workflow) Advance(ctx context.Context, name string, o AdvanceOptions) ([]report.Moved, error) {
	out := []report.Moved{}
	if o.To != "" {
		if _, err := states.Parse(string(o.To)); err != nil {
			return out, fmt.Errorf("%w: %w", ErrUsage, err)
		}
	}
	o.ApplyOptions.Yes = o.ApplyOptions.Yes || o.Yes
	for {
		p, err := w.enter(ctx, name)
		if err != nil {
			return out, err
		}
		if p.env.State == o.To {
			return out, nil
		}
		on, ok := states.Next(p.env.State)
		if !ok || p.env.State == states.Trial {
			return out, w.recordRefusal(ctx, p, impossible(guards.Facts{Env: name, State: p.env.State}, "advance"))
		}
		m := report.Moved{Schema: report.Schema("moved"), Name: name, On: on, From: p.env.State}
		if err := w.advance(ctx, &p, on, o, &m); err != nil {
			return out, err
		}
		m.To = p.env.State
		out = append(out, m)
		if o.To == "" || p.env.State == states.Committed || p.env.State == states.RolledBack {
			return out, nil
		}
	}
}

func (w *Workflow) advance(ctx context.Context, p *place, on states.Trigger, o AdvanceOptions, m *report.Moved) error {
	switch on {
	case states.Authorize:
		return w.grant(ctx, p, o.ApplyOptions)
	case states.Try:
		doc, err := w.try(ctx, p, o.ApplyOptions)
		m.Note = doc.Txn
		return err
	}
	return w.step(ctx, p, on, o.ApplyOptions)
}
