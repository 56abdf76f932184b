package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/guards/authority"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// ApplyOptions say how far to go and under which conditions.
type ApplyOptions struct {
	Plan string // digest that must be the one applied; empty: the last recorded
	Yes  bool   // grants the digest of the last recorded plan
	// NoBootRecovery accepts that nothing undoes the trial after a reboot.
	NoBootRecovery bool
	// Trial accepts typed network changes only.
	Trial bool
	// ConfirmWithin makes the trial end unless a human confirms it in time, over
	// another connection. Zero: no confirmation is wanted.
	ConfirmWithin time.Duration
	// Progress is told lines for people; may be nil.
	Progress func(line string)
}

func (o ApplyOptions) say(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// Apply does whatever steps are missing from the present state, every one of
// them recorded, and ends with a trial that is committed or rolled back.
func (w *Workflow) Apply(ctx context.Context, name string, o ApplyOptions) (report.Applied, error) {
	var doc report.Applied
	err := again(ctx, func() error {
		p, err := w.enter(ctx, name)
		if err != nil {
			return err
		}
		if o.Trial && !p.policy.AutoRollback {
			return hint(errors.New("--trial always rolls back; the environment has --auto-rollback=false"), "netsandbox apply %s --yes", name)
		}
		if err := w.upTo(ctx, &p, states.Planned, o); err != nil {
			return err
		}
		if p.env.State == states.Planned {
			if err := w.grant(ctx, &p, o); err != nil {
				return err
			}
		}
		doc, err = w.try(ctx, &p, o)
		return err
	})
	return doc, err
}

// upTo makes the steps between where the environment is and being planned.
func (w *Workflow) upTo(ctx context.Context, p *place, goal states.State, o ApplyOptions) error {
	for p.env.State != goal && p.env.State != states.Authorized {
		on, ok := states.Next(p.env.State)
		if !ok || p.env.State == states.Trial {
			return w.recordRefusal(ctx, *p, impossible(guards.Facts{Env: p.env.Name, State: p.env.State}, states.Try))
		}
		was := p.env.State
		if err := w.step(ctx, p, on, o); err != nil {
			return err
		}
		if p.env.State == was {
			return fmt.Errorf("environment %s: %s did not leave %s", p.env.Name, on, was)
		}
		if p.env.State == goal {
			return nil
		}
	}
	return nil
}

// step makes one of the moves that need no authority.
func (w *Workflow) step(ctx context.Context, p *place, on states.Trigger, o ApplyOptions) error {
	switch on {
	case states.Check:
		doc, err := w.check(ctx, p, CheckOptions{})
		if err != nil {
			return err
		}
		if doc.To != states.Checked {
			return &RefusedError{Env: p.env.Name, From: doc.From, On: on, Refusals: w.whyNot(ctx, *p, doc)}
		}
		o.say("Checked %s", count(len(doc.Circuits), "circuit"))
		return nil
	case states.Plan:
		doc, err := w.plan(ctx, p)
		if err == nil {
			o.say("Planned %s", doc.Digest)
		}
		return err
	}
	return fmt.Errorf("bug: %s is not a step of its own", on)
}

// whyNot lists what kept a check from reaching Checked.
func (w *Workflow) whyNot(ctx context.Context, p place, doc report.Check) []guards.Refusal {
	if len(doc.Refusals) > 0 {
		return doc.Refusals
	}
	l, err := w.read(ctx, p)
	if err != nil {
		return []guards.Refusal{{Guard: states.ChangesPresent, Reason: err.Error(), Fix: "netsandbox changes " + p.env.Name}}
	}
	f := guards.Facts{Env: p.env.Name, State: p.env.State, Layer: l.facts(p.spec.Base)}
	if r := guards.Check([]states.Guard{states.ChangesPresent}, f); len(r) > 0 {
		return r
	}
	return []guards.Refusal{{
		Guard: states.ChangesPresent, Reason: "what the view changes came and went while it was checked", Fix: "netsandbox check " + p.env.Name,
	}}
}

// grant is --yes: authority for the digest of the last recorded plan and for
// nothing else.
func (w *Workflow) grant(ctx context.Context, p *place, o ApplyOptions) error {
	last, err := w.lastPlan(ctx, *p)
	if err != nil {
		return err
	}
	if o.Plan != "" && o.Plan != last.Digest {
		return w.recordRefusal(ctx, *p, &RefusedError{Env: p.env.Name, From: p.env.State, On: states.Authorize, Refusals: []guards.Refusal{{
			Guard: states.PlanCurrent, Reason: "the recorded plan is another one",
			Subjects: []string{"recorded " + last.Digest, "asked for " + o.Plan}, Fix: "netsandbox plan " + p.env.Name,
		}}})
	}
	if !o.Yes || p.policy.Authority != string(authority.Root) {
		return w.recordRefusal(ctx, *p, &RefusedError{Env: p.env.Name, From: p.env.State, On: states.Try, Refusals: []guards.Refusal{{
			Guard: states.AuthorityHeld, Reason: "no authority was given for this plan",
			Fix: "netsandbox authorize " + p.env.Name + " --plan " + last.Digest,
		}}})
	}
	how := "--yes"
	if o.NoBootRecovery {
		how += " --no-boot-recovery"
	}
	_, err = w.authorize(ctx, p, AuthorizeOptions{Plan: last.Digest, How: how, For: authority.Default})
	return err
}

// DryRun says what apply would do and what is in its way. It refreshes nothing
// and changes nothing.
func (w *Workflow) DryRun(ctx context.Context, name string, o ApplyOptions) (report.DryRun, error) {
	doc := report.DryRun{
		Schema: report.Schema("dry-run"), Name: name, Steps: []states.Trigger{}, Changes: []change.Change{},
		Refusals: []guards.Refusal{}, Blockers: []change.Blocker{},
	}
	p, err := w.find(ctx, name)
	if err != nil {
		return doc, err
	}
	if p, err = peek(p); err != nil {
		return doc, err
	}
	l, err := w.read(ctx, p)
	if err != nil {
		return doc, err
	}
	doc.Changes, doc.Blockers = list(l.Changes), list(l.Blockers)
	f, err := w.facts(ctx, p, l)
	if err != nil {
		return doc, err
	}
	f.ConfirmWithin = o.ConfirmWithin > 0
	if f.Plan, err = w.planFact(ctx, p, l, f); err != nil {
		return doc, err
	}
	f.HostLock, f.Lease = guards.Lock{Held: true}, w.leaseFact(p, o.NoBootRecovery)
	f.Lease.Armed = true
	doc.Steps, doc.Refusals = ahead(p.env.State, f, o)
	if r, ok := networkOnly(name, l.Changes); o.Trial && !ok {
		doc.Refusals = append(doc.Refusals, r)
	}
	pre, err := w.preflight(ctx, p, l.Changes, l.Blockers)
	if err != nil {
		return doc, err
	}
	doc.Refusals = refusals(doc.Refusals, pre)
	doc.Would = len(doc.Refusals) == 0
	return doc, nil
}

// networkOnly is what --trial asks of a plan.
func networkOnly(name string, cs []change.Change) (guards.Refusal, bool) {
	for _, c := range cs {
		if c.Kind == change.KindFile {
			return guards.Refusal{
				Guard: "typed-network-only", Reason: "--trial takes typed network changes only", Subjects: []string{c.Path.String()},
				Fix: "netsandbox apply " + name + " --yes",
			}, false
		}
	}
	return guards.Refusal{}, true
}

// ahead walks the table from a state to Trial and asks the guards that can be
// answered now: what a step on the way makes true counts as true.
func ahead(from states.State, f guards.Facts, o ApplyOptions) (steps []states.Trigger, refusals []guards.Refusal) {
	asked := map[states.Guard]bool{states.PlanCurrent: from != states.Planned && from != states.Authorized, states.AuthorityHeld: o.Yes || from != states.Authorized}
	for st := from; st != states.Trial; {
		on, ok := states.Next(st)
		if !ok {
			r, _ := errors.AsType[*RefusedError](impossible(guards.Facts{Env: f.Env, State: st}, states.Try))
			return steps, append(refusals, r.Refusals...)
		}
		edge, _ := states.Find(st, on)
		steps = append(steps, on)
		for _, g := range edge.Guards {
			if asked[g] {
				continue
			}
			asked[g] = true
			refusals = append(refusals, guards.Check([]states.Guard{g}, f)...)
		}
		st = edge.To
	}
	return steps, list(refusals)
}
