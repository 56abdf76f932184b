package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/lease/bootunit"
	"github.com/netsandbox/netsandbox/workflow/plan"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// Plan freezes what apply would do as a document with a digest.
func (w *Workflow) Plan(ctx context.Context, name string) (report.Plan, error) {
	var doc report.Plan
	err := again(ctx, func() error {
		p, err := w.enter(ctx, name)
		if err != nil {
			return err
		}
		doc, err = w.plan(ctx, &p)
		return err
	})
	return doc, err
}

// plan refreshes evidence that is stale, holds the view still, and freezes the
// wanted bytes. The canaries run before the freeze: a frozen daemon answers none.
func (w *Workflow) plan(ctx context.Context, p *place) (report.Plan, error) {
	if _, ok := states.Find(p.env.State, states.Plan); !ok {
		return report.Plan{}, w.recordRefusal(ctx, *p, impossible(guards.Facts{Env: p.env.Name, State: p.env.State}, states.Plan))
	}
	unlock, err := w.lock(*p, execlog.Exclusive)
	if err != nil {
		return report.Plan{}, err
	}
	defer unlock()
	if err := w.freshen(ctx, *p); err != nil {
		return report.Plan{}, err
	}
	thaw, err := p.view.Freeze(ctx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return report.Plan{}, fmt.Errorf("freeze the view of %s: %w", p.env.Name, err)
	}
	if thaw != nil {
		defer func() { _ = thaw() }()
	}
	l, err := w.read(ctx, *p)
	if err != nil {
		return report.Plan{}, err
	}
	f, err := w.facts(ctx, *p, l)
	if err != nil {
		return report.Plan{}, err
	}
	doc, err := w.compose(ctx, *p, l, f)
	if err != nil {
		return report.Plan{}, err
	}
	pre, err := w.preflight(ctx, *p, l.Changes, l.Blockers)
	if err != nil {
		return report.Plan{}, err
	}
	// The guards are asked before the bytes are copied, and again with the move.
	edge, _ := states.Find(p.env.State, states.Plan)
	if r := refusals(guards.Check(edge.Guards, f), pre); len(r) > 0 {
		return report.Plan{}, w.recordRefusal(ctx, *p, &RefusedError{Env: p.env.Name, From: p.env.State, On: states.Plan, Refusals: r})
	}
	err = w.plans().Freeze(ctx, doc, func(path change.Path) (*os.File, error) { return p.view.Content(ctx, path) })
	if err != nil {
		return report.Plan{}, fmt.Errorf("freeze the plan: %w", err)
	}
	digest := doc.Digest()
	_, err = w.do(ctx, p, move{on: states.Plan, facts: f, with: func(tx *journal.Tx, env *journal.Env, _ states.State) error {
		env.Layer = l.digest
		if err := tx.PutPlan(journal.Plan{Env: env.ID, Cycle: env.Cycle, Digest: digest, Layer: l.digest, Path: digest}); err != nil {
			return err
		}
		return w.event(tx, env.ID, "", EventPlanMade, map[string]any{"plan": digest, "changes": len(doc.Changes), "layer": l.digest})
	}})
	if err != nil {
		return report.Plan{}, err
	}
	return w.planReport(*p, doc, f), nil
}

// freshen observes again when what is recorded would be refused as stale. What
// is fresh already is not probed twice.
func (w *Workflow) freshen(ctx context.Context, p place) error {
	l, err := w.read(ctx, p)
	if err != nil {
		return err
	}
	f, err := w.facts(ctx, p, l)
	if err != nil {
		return err
	}
	if guards.Check([]states.Guard{states.CircuitsFresh}, f) == nil {
		return nil
	}
	if err := w.renew(ctx, p, l); err != nil {
		return err
	}
	seen, err := w.observer(p, l.digest, 0).all(ctx, f.Circuits)
	if err != nil {
		return err
	}
	return w.store.Update(ctx, func(tx *journal.Tx) error { return w.observed(tx, p.env.ID, forCheck, seen) })
}

// compose writes the plan that the present facts make.
func (w *Workflow) compose(ctx context.Context, p place, l layer, f guards.Facts) (*plan.Plan, error) {
	weakened, err := w.weakened(ctx, p)
	if err != nil {
		return nil, err
	}
	doc := &plan.Plan{
		Schema: plan.Schema, Env: p.env.Name, EnvID: p.env.ID, Cycle: p.env.Cycle, Backend: p.env.Backend, Base: change.Path(p.spec.Base), HostID: w.hostID(),
		Layer: l.digest, Changes: l.Changes, Circuits: f.Circuits,
		Policy:    plan.Policy{OnFailure: p.policy.OnFailure, AutoRollback: p.policy.AutoRollback, Authority: p.policy.Authority, BootRecovery: bootRecovery(p.spec.Base)},
		Weakened:  weakened,
		Processes: f.Processes,
	}
	change.Sort(doc.Changes)
	doc.Notes = plan.Notes(doc.Changes)
	if h, ok := w.bounded(p).(backends.Labeller); ok && h.Labelled() {
		doc.Notes = append(doc.Notes, plan.LabelNote(doc.Changes))
	}
	if doc.Policy.BootRecovery == bootUnit {
		doc.Notes = append(doc.Notes, "apply installs "+bootunit.Path+" where it is missing")
	}
	for _, x := range doc.Processes {
		doc.Irreversible = append(doc.Irreversible, x+" ends")
	}
	return doc, nil
}

// weakened lists what was made less strict in this environment, and by whom.
// It is part of what authority is given for, so not knowing it is an error.
func (w *Workflow) weakened(ctx context.Context, p place) ([]string, error) {
	var out []string
	err := w.store.View(ctx, func(tx *journal.Tx) error {
		for _, name := range []string{EventCircuitChanged, EventCircuitRemoved} {
			es, err := tx.Events(journal.EventFilter{Env: p.env.ID, Event: name})
			if err != nil {
				return err
			}
			for _, e := range es {
				if s, ok := weakening(e); ok {
					out = append(out, s)
				}
			}
		}
		return nil
	})
	if p.policy.OnFailure == Warn {
		out = append(out, "--on-failure warn: a lost circuit does not block")
	}
	return out, err
}

// planFact is the recorded plan of this cycle beside what planning would give
// now; nil when there is none.
func (w *Workflow) planFact(ctx context.Context, p place, l layer, f guards.Facts) (*guards.Plan, error) {
	last, err := w.lastPlan(ctx, p)
	if errors.Is(err, journal.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := w.compose(ctx, p, l, f)
	if err != nil {
		return nil, err
	}
	return &guards.Plan{Digest: last.Digest, Now: now.Digest(), Cycle: last.Cycle}, nil
}

func (w *Workflow) lastPlan(ctx context.Context, p place) (last journal.Plan, err error) {
	err = w.store.View(ctx, func(tx *journal.Tx) error {
		last, err = tx.LastPlan(p.env.ID, p.env.Cycle)
		return err
	})
	return last, err
}

func (w *Workflow) plans() *plan.Store { return plan.NewStore(w.Dir) }

// openPlan opens the frozen plan of a digest with its bytes.
func (w *Workflow) openPlan(digest string) (*plan.Plan, backends.Wanted, error) {
	frozen, err := w.plans().Open(digest)
	if err != nil {
		return nil, nil, fmt.Errorf("open plan %s: %w", digest, err)
	}
	return frozen.Plan, frozen, nil
}

// planReport renders a plan.
func (w *Workflow) planReport(p place, doc *plan.Plan, f guards.Facts) report.Plan {
	return report.Plan{
		Schema: report.Schema("plan"), Name: p.env.Name, Digest: doc.Digest(), Layer: doc.Layer, Cycle: doc.Cycle, Base: string(doc.Base),
		Changes: list(doc.Changes), Commands: change.Script(doc.Changes), Circuits: w.circuits(f), Policy: policyDoc(p.policy),
		Weakened: doc.Weakened, Processes: doc.Processes, Irreversible: doc.Irreversible, Notes: doc.Notes, State: p.env.State,
	}
}

// planDoc is the recorded plan of this cycle for inspect.
func (w *Workflow) planDoc(ctx context.Context, p place) (*report.Plan, error) {
	last, err := w.lastPlan(ctx, p)
	if errors.Is(err, journal.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	doc, _, err := w.openPlan(last.Digest)
	if err != nil {
		return nil, err
	}
	f, err := w.facts(ctx, p, layer{})
	if err != nil {
		return nil, err
	}
	out := w.planReport(p, doc, f)
	return &out, nil
}
