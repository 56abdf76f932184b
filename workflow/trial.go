package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/hostlock"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/lease"
	"github.com/netsandbox/netsandbox/workflow/plan"
	"github.com/netsandbox/netsandbox/workflow/report"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// attempt is one trial on its way. Its methods are in the order of the design:
// refresh, replan, prepare, arm, begin, change, judge, decide.
type attempt struct {
	*Workflow
	p    *place
	o    ApplyOptions
	doc  report.Applied
	plan *plan.Plan
	want backends.Wanted

	facts guards.Facts
	host  *hostlock.Lock
	txn   *txn.Txn
	lease *lease.Lease
	nonce string
	swap  time.Time // when the host began to change; zero before
}

// try puts the recorded plan on the host as a trial. Before the state is Trial,
// whatever goes wrong leaves the host as it was and is a refusal or an error;
// after it, the only ways out are a commit and an undo.
func (w *Workflow) try(ctx context.Context, p *place, o ApplyOptions) (report.Applied, error) {
	a := &attempt{Workflow: w, p: p, o: o, doc: report.Applied{
		Schema: report.Schema("applied"), Name: p.env.Name, State: p.env.State, Circuits: []report.Circuit{},
	}}
	unlock, err := w.lock(*p, execlog.Exclusive)
	if err != nil {
		return a.doc, err
	}
	defer unlock()
	defer a.close()
	if err := a.ready(ctx); err != nil {
		return a.doc, err
	}
	if err := a.begin(ctx); err != nil {
		return a.doc, errors.Join(err, a.abandon(ctx))
	}
	return a.doc, a.run(ctx)
}

// ready gathers everything the guards of the trial ask for. Nothing is on the
// host when it returns, but a keeper watches.
func (a *attempt) ready(ctx context.Context) (err error) {
	if a.host, err = a.takeHost(); err != nil {
		return err
	}
	if err := a.refresh(ctx); err != nil {
		return err
	}
	if err := a.replan(ctx); err != nil {
		return err
	}
	// The guards that need nobody's help are asked before anything is made.
	early := []states.Guard{states.PlanCurrent, states.AuthorityHeld, states.CircuitsFresh, states.OriginsUnchanged, states.HostLock}
	if r := guards.Check(early, a.facts); len(r) > 0 {
		return a.refuse(ctx, r...)
	}
	if err := a.preflight(ctx); err != nil {
		return err
	}
	if err := a.installRecovery(ctx); err != nil {
		return err
	}
	return a.arm(ctx)
}

// takeHost takes the host-wide lock, which names whoever has it.
func (a *attempt) takeHost() (*hostlock.Lock, error) {
	l, err := hostlock.Take(a.holder())
	var busy *hostlock.BusyError
	if errors.As(err, &busy) {
		return nil, hint(fmt.Errorf("%w: %w", ErrBusy, err), "netsandbox history")
	}
	return l, err
}

// holder is what a second trial is told.
func (a *attempt) holder() hostlock.Holder {
	return hostlock.Holder{PID: os.Getpid(), UID: uint32(os.Geteuid()), Env: a.p.env.Name, Txn: a.doc.Txn, Base: a.p.spec.Base}
}

// refresh observes the required circuits in the candidate view once more: the
// freshness window must not include the time somebody took to type a password.
func (a *attempt) refresh(ctx context.Context) error {
	defs, err := a.definitions(ctx, a.p.env)
	if err != nil {
		return err
	}
	var required []circuit.Definition
	for _, d := range defs {
		if d.Required {
			required = append(required, d)
		}
	}
	l, err := a.read(ctx, *a.p)
	if err != nil {
		return err
	}
	if err := a.renew(ctx, *a.p, l); err != nil {
		return err
	}
	seen, err := a.observer(*a.p, l.digest, 0).all(ctx, required)
	if err != nil {
		return err
	}
	a.doc.Refreshed = len(required)
	return a.store.Update(ctx, func(tx *journal.Tx) error { return a.observed(tx, a.p.env.ID, forCheck, seen) })
}

// replan reads the layer again and compares it with the recorded plan.
func (a *attempt) replan(ctx context.Context) error {
	l, err := a.read(ctx, *a.p)
	if err != nil {
		return err
	}
	if a.facts, err = a.Workflow.facts(ctx, *a.p, l); err != nil {
		return err
	}
	a.facts.ConfirmWithin = a.o.ConfirmWithin > 0
	a.facts.HostLock.Held = true
	if a.facts.Plan, err = a.planFact(ctx, *a.p, l, a.facts); err != nil {
		return err
	}
	last, err := a.lastPlan(ctx, *a.p)
	if err != nil {
		return err
	}
	if a.o.Plan != "" && a.o.Plan != last.Digest {
		a.facts.Plan.Now = a.o.Plan
	}
	a.plan, a.want, err = a.openPlan(last.Digest)
	if err == nil {
		a.doc.Changes = len(a.plan.Changes)
	}
	return err
}

// preflight asks the host once more whether it can take the change.
func (a *attempt) preflight(ctx context.Context) error {
	if r, ok := networkOnly(a.p.env.Name, a.plan.Changes); a.o.Trial && !ok {
		return a.refuse(ctx, r)
	}
	r, err := a.Workflow.preflight(ctx, *a.p, a.plan.Changes, nil)
	if err != nil {
		return err
	}
	if r != nil {
		return a.refuse(ctx, *r)
	}
	return nil
}

func (a *attempt) refuse(ctx context.Context, rs ...guards.Refusal) error {
	return a.recordRefusal(ctx, *a.p, &RefusedError{Env: a.p.env.Name, From: a.p.env.State, On: states.Try, Refusals: rs})
}

// arm makes the undo durable and starts who will do it. The row comes first, so
// that recover finds the file; the file comes before the keeper, which undoes
// from it.
func (a *attempt) arm(ctx context.Context) error {
	now, err := a.Clock()
	if err != nil {
		return err
	}
	id := txn.NewID(now.At)
	a.doc.Txn = id
	detail, err := a.detail()
	if err != nil {
		return err
	}
	err = a.store.Update(ctx, func(tx *journal.Tx) error {
		if err := tx.AddTxn(journal.Txn{
			ID: id, Env: a.p.env.ID, Cycle: a.p.env.Cycle, Plan: a.plan.Digest(), Grant: a.facts.Grant.ID,
			Status: string(txn.Prepared), Path: filepath.Join(a.Dir, txnsDir, id), Detail: detail, Instant: now,
		}); err != nil {
			return err
		}
		return a.event(tx, a.p.env.ID, id, EventChangeIntended, map[string]any{"plan": a.plan.Digest(), "changes": len(a.plan.Changes)})
	})
	if err != nil {
		return err
	}
	a.txn, err = txn.Create(filepath.Join(a.Dir, txnsDir), txn.Header{
		ID: id, Env: a.p.env.Name, EnvID: a.p.env.ID, Cycle: int64(a.p.env.Cycle), Plan: a.plan.Digest(),
		HostID: a.plan.HostID, BootID: now.BootID, UID: uint32(os.Geteuid()), Created: now.At,
	})
	if err != nil {
		return err
	}
	if err := a.txn.Prepare(ctx, a.bounded(*a.p), a.plan.Changes); err != nil {
		return errors.Join(fmt.Errorf("prepare: %w", err), a.abandon(ctx))
	}
	if err := a.host.Describe(a.holder()); err != nil {
		return errors.Join(err, a.abandon(ctx))
	}
	if err := a.watch(ctx); err != nil {
		return errors.Join(err, a.abandon(ctx))
	}
	a.facts.Lease = a.leaseFact(*a.p, a.o.NoBootRecovery)
	a.facts.Lease.Armed, a.facts.Lease.Held = true, true
	return nil
}

// begin makes the state Trial: the last line before the host may change. The
// gate shuts first, so that no command runs in a view whose plan is on trial.
func (a *attempt) begin(ctx context.Context) error {
	id := a.txn.ID()
	if err := execlog.Gate(a.p.spec.Dir, execlog.Trial+" "+id); err != nil {
		return err
	}
	m, err := a.do(ctx, a.p, move{
		on: states.Try, facts: a.facts, txn: id,
		with: func(tx *journal.Tx, env *journal.Env, _ states.State) error {
			if err := tx.UseGrant(a.facts.Grant.ID, id); err != nil {
				return err
			}
			if err := tx.MoveTxn(id, string(txn.Prepared), string(txn.Armed), nil); err != nil {
				return err
			}
			return a.event(tx, env.ID, id, EventLeaseArmed, map[string]any{"keeper": a.lease.PID(), "notes": a.lease.Notes()})
		},
	})
	a.doc.State = m.to
	return err
}

// run changes the host, looks, and decides. However it ends, there is a verdict.
func (a *attempt) run(ctx context.Context) error {
	a.o.say("Refreshed %s immediately before apply", count(a.doc.Refreshed, "required circuit"))
	a.o.say("Rollback transaction: %s", a.txn.ID())
	if err := a.change(ctx); err != nil {
		return a.undo(ctx, err.Error(), nil)
	}
	if err := a.judge(ctx); err != nil {
		return a.undo(ctx, err.Error(), nil)
	}
	if err := a.confirmed(ctx); err != nil {
		return a.undo(ctx, err.Error(), nil)
	}
	a.facts.Lease.Held = a.lease.Err() == nil
	if r := guards.Check(commitGuards(), a.facts); len(r) > 0 {
		return a.undo(ctx, r[0].String(), r)
	}
	return a.commit(ctx)
}

func commitGuards() []states.Guard {
	e, _ := states.Find(states.Trial, states.Commit)
	return e.Guards
}

// change stages and swaps. The keeper's death or a broken circuit ends it early.
func (a *attempt) change(ctx context.Context) error {
	if err := a.txn.Stage(ctx, a.Host, a.want); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	if err := a.still(ctx); err != nil {
		return err
	}
	a.swap = time.Now()
	if err := a.txn.Swap(ctx, a.Host); err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	return a.index(ctx, txn.Armed, txn.Trial, EventChangeApplied, map[string]any{"changes": len(a.plan.Changes)})
}

// still fails when the trial must not go on.
func (a *attempt) still(ctx context.Context) error {
	select {
	case <-a.lease.Lost():
		return a.lease.Err()
	case what := <-a.lease.Broken():
		return fmt.Errorf("the host was cut off: %s", what)
	case <-ctx.Done():
		return errors.New("interrupted")
	default:
		return a.lease.Renew()
	}
}

// judge compares the host with the plan and asks every circuit on it, from the
// jail, while the keeper watches.
func (a *attempt) judge(ctx context.Context) error {
	left, err := a.txn.Verify(ctx, a.Host)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	a.facts.Trial.Verified = len(left) == 0
	a.facts.Trial.Differs = obstacles(left)
	a.facts.Trial.Keep = !a.p.policy.AutoRollback
	a.facts.Trial.ConfirmRequired = a.o.ConfirmWithin > 0
	var seen []circuit.Observation
	err = a.watched(ctx, func(ctx context.Context) (err error) {
		seen, err = a.observer(*a.p, a.facts.Layer.Digest, 0).host(ctx, a.facts.Circuits)
		return err
	})
	if err != nil {
		return err
	}
	a.facts.Trial.Results = byCircuit(seen)
	on := a.facts
	on.Observations = a.facts.Trial.Results
	a.doc.Circuits = a.circuits(on)
	for _, c := range a.doc.Circuits {
		if c.Required && !c.Result.Holds() && a.facts.Trial.Keep {
			a.doc.Warnings = append(a.doc.Warnings, fmt.Sprintf("circuit %s is %s (%s) and --auto-rollback=false keeps the change", c.Label, c.Result, c.Reason))
		}
	}
	return a.store.Update(ctx, func(tx *journal.Tx) error { return a.observed(tx, a.p.env.ID, forTrial, seen) })
}

// watched runs fn and gives up as soon as the trial must not go on.
func (a *attempt) watched(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	select {
	case err := <-done:
		return err
	case <-a.lease.Lost():
		cancel(a.lease.Err())
		return a.lease.Err()
	case what := <-a.lease.Broken():
		cancel(errors.New(what))
		return fmt.Errorf("the host was cut off: %s", what)
	case <-ctx.Done():
		return errors.New("interrupted")
	}
}

func obstacles(left []backends.Leftover) []guards.Obstacle {
	var out []guards.Obstacle
	for _, l := range left {
		out = append(out, guards.Obstacle{Subject: l.Subject, Reason: "found " + l.Found + ", wanted " + l.Wanted, Fix: l.Fix})
	}
	return out
}
