package workflow

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// The purposes of observations.
const (
	forCheck = "check" // in the candidate view
	forTrial = "trial" // on the host, after apply
)

// CheckOptions tune check.
type CheckOptions struct {
	Timeout time.Duration // of one probe in one world; zero is [DefaultTimeout]
}

// Check runs every circuit in the candidate view and records what it saw. It
// takes no lock, so a shadow service may run in the foreground meanwhile; the
// observations are bound to the layer as it was before the first probe.
func (w *Workflow) Check(ctx context.Context, name string, o CheckOptions) (report.Check, error) {
	var doc report.Check
	err := again(ctx, func() error {
		p, err := w.enter(ctx, name)
		if err != nil {
			return err
		}
		// The table's own no comes before any canary runs.
		var refused *RefusedError
		if _, _, err := decide(ctx, guards.Facts{Env: name, State: p.env.State}, states.Check); errors.As(err, &refused) && refused.Refusals[0].Guard == tableGuard {
			return err
		}
		doc, err = w.check(ctx, &p, o)
		return err
	})
	return doc, err
}

func (w *Workflow) check(ctx context.Context, p *place, o CheckOptions) (report.Check, error) {
	doc := report.Check{Schema: report.Schema("check"), Name: p.env.Name}
	before, err := w.read(ctx, *p)
	if err != nil {
		return doc, err
	}
	if doc.Notes, err = w.renewed(ctx, *p, before); err != nil {
		return doc, err
	}
	defs, err := w.definitions(ctx, p.env)
	if err != nil {
		return doc, err
	}
	seen, err := w.observer(*p, before.digest, o.Timeout).all(ctx, defs)
	if err != nil {
		return doc, err
	}
	after, err := w.read(ctx, *p) // a command may have run beside the probes
	if err != nil {
		return doc, err
	}
	f, err := w.facts(ctx, *p, after)
	if err != nil {
		return doc, err
	}
	f.Circuits, f.Observations = defs, byCircuit(seen)
	m, err := w.do(ctx, p, move{
		on: states.Check, facts: f, record: func(tx *journal.Tx) error { return w.observed(tx, p.env.ID, forCheck, seen) },
		with: func(tx *journal.Tx, env *journal.Env, _ states.State) error {
			env.Layer = before.digest
			return w.noteTwin(tx, env, after.status.TwinLost)
		},
	})
	if err != nil {
		return doc, err
	}
	doc.Layer, doc.From, doc.To = before.digest, m.from, m.to
	doc.Circuits = w.circuits(f)
	// Whether the environment moved is one thing, whether the circuits hold is what
	// the exit status says: circuits can be checked before there is a change.
	if r := guards.Check([]states.Guard{states.CircuitsPreserved}, f); r != nil {
		doc.Refusals = r
	}
	doc.OK = len(doc.Refusals) == 0
	if r := guards.Check([]states.Guard{states.ChangesPresent}, f); doc.OK && m.from == m.to && r != nil {
		doc.Note = r[0].Reason
	}
	if p.policy.OnFailure == StopView && lost(seen) {
		return doc, p.view.Stop(ctx) // --on-failure stop: nothing goes on in a world that lost its lifeline
	}
	return doc, nil
}

func lost(os []circuit.Observation) bool {
	return slices.ContainsFunc(os, func(o circuit.Observation) bool { return o.Result == circuit.Lost })
}

// observer is what probes circuits of a place.
func (w *Workflow) observer(p place, layer string, timeout time.Duration) observer {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return observer{env: p.env.Name, runner: p.view, now: w.Clock, layer: layer, timeout: timeout, environ: callerEnv()}
}

// observed writes observations and their events.
func (w *Workflow) observed(tx *journal.Tx, env, purpose string, os []circuit.Observation) error {
	for _, o := range os {
		if o.BootID == "" {
			continue // the clock could not be read; undated evidence is none
		}
		if err := tx.AddObservation(journal.Observation{Env: env, Purpose: purpose, Observation: o}); err != nil {
			return err
		}
		err := w.event(tx, env, "", EventCircuitChecked, map[string]any{
			"circuit": o.Circuit, "outcome": o.Result, "reason": o.Reason, "layer": o.Layer, "purpose": purpose,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// definitions lists the circuits of an environment.
func (w *Workflow) definitions(ctx context.Context, env journal.Env) ([]circuit.Definition, error) {
	var defs []circuit.Definition
	return defs, w.store.View(ctx, func(tx *journal.Tx) error {
		cs, err := tx.Circuits(env.ID)
		for _, c := range cs {
			defs = append(defs, c.Definition)
		}
		return err
	})
}

// facts gathers what the journal and the layer know; steps add what only they
// know, such as a lock or a lease.
func (w *Workflow) facts(ctx context.Context, p place, l layer) (guards.Facts, error) {
	f := guards.Facts{
		Env: p.env.Name, State: p.env.State, Cycle: p.env.Cycle, Warn: p.policy.OnFailure == Warn,
		Layer: l.facts(p.spec.Base), Processes: processes(l.status),
	}
	if err := w.instant(&f); err != nil {
		return f, err
	}
	return f, w.store.View(ctx, func(tx *journal.Tx) error {
		cs, err := tx.Circuits(p.env.ID)
		if err != nil {
			return err
		}
		for _, c := range cs {
			f.Circuits = append(f.Circuits, c.Definition)
		}
		obs, err := tx.LatestObservations(p.env.ID, forCheck, "")
		if err != nil {
			return err
		}
		f.Observations = make(map[string]circuit.Observation, len(obs))
		for id, o := range obs {
			f.Observations[id] = o.Observation
		}
		g, err := tx.LastGrant(p.env.ID)
		if err == nil {
			f.Grant = &g.Grant
		} else if !errors.Is(err, journal.ErrNotFound) {
			return err
		}
		return nil
	})
}

func byCircuit(os []circuit.Observation) map[string]circuit.Observation {
	m := make(map[string]circuit.Observation, len(os))
	for _, o := range os {
		m[o.Circuit] = o
	}
	return m
}
