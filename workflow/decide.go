package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// commit writes the verdict, which is the decision, and then lets everything
// else follow it. A crash after the verdict is finished by recover.
func (a *attempt) commit(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := a.txn.Commit(txn.Applier, "every required circuit holds on the host"); err != nil {
		return a.undo(ctx, err.Error(), nil)
	}
	if err := a.lease.Release(string(txn.Commit)); err != nil {
		a.doc.Warnings = append(a.doc.Warnings, err.Error())
	}
	a.doc.Outcome = "committed"
	// The change stays, whatever becomes of the rest: an error here would read as if
	// nothing had been changed.
	if err := a.txn.Clean(ctx, a.Host); err != nil {
		a.doc.Warnings = append(a.doc.Warnings, "not all was tidied up after the commit: "+err.Error())
	}
	warnings, err := a.settle(ctx, a.p, a.txn, a.facts)
	a.doc.Warnings = append(a.doc.Warnings, warnings...)
	if err != nil {
		a.doc.Warnings = append(a.doc.Warnings, "the journal does not know of the commit until netsandbox recover: "+err.Error())
	}
	a.doc.State = a.p.env.State
	return nil
}

// undo takes the host back and says why. What cannot be taken back is left, with
// the original beside it, and reported.
func (a *attempt) undo(ctx context.Context, reason string, refusals []guards.Refusal) error {
	ctx = context.WithoutCancel(ctx) // an undo that began is not given up
	_ = a.lease.Undoing()            // a keeper that is gone needs not be told
	left, err := a.txn.Undo(ctx, a.Host, txn.Applier, reason)
	a.doc.Reason, a.doc.Refusals, a.doc.Left = reason, refusals, left
	if err != nil {
		// The keeper still watches: it finds no finished verdict when this process
		// ends, and tries again.
		left = append(left, backends.Leftover{Subject: a.txn.ID(), Found: err.Error(), Wanted: "the host as before", Fix: "netsandbox recover"})
		a.doc.Outcome, a.doc.Left = "incomplete", left
		return &IncompleteError{Txn: a.txn.ID(), Left: left}
	}
	a.doc.OutageMS = a.outage(ctx)
	if err := a.lease.Release(string(txn.Undo)); err != nil && a.lease.Err() == nil {
		a.doc.Warnings = append(a.doc.Warnings, err.Error())
	}
	warnings, serr := a.settle(ctx, a.p, a.txn, a.facts)
	a.doc.Warnings, a.doc.State = append(a.doc.Warnings, warnings...), a.p.env.State
	if len(left) > 0 {
		a.doc.Outcome = "incomplete"
		return errors.Join(&IncompleteError{Txn: a.txn.ID(), Left: left}, serr)
	}
	a.doc.Outcome = "rolled_back"
	undone := &UndoneError{Txn: a.txn.ID(), Reason: reason}
	if a.doc.OutageMS > 0 {
		undone.Outage = time.Duration(a.doc.OutageMS * float64(time.Millisecond)).Round(time.Millisecond).String()
	}
	return errors.Join(undone, serr)
}

// outage measures, in milliseconds, how long the circuits that the trial cut did
// not answer: from the swap until each of them answers again.
func (a *attempt) outage(ctx context.Context) float64 {
	var lost []circuit.Definition
	for _, d := range a.facts.Circuits {
		if o, ok := a.facts.Trial.Results[d.ID]; ok && o.Result == circuit.Lost {
			lost = append(lost, d)
		}
	}
	if len(lost) == 0 || a.swap.IsZero() {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		seen, err := a.observer(*a.p, a.facts.Layer.Digest, 0).host(ctx, lost)
		if err != nil {
			break
		}
		ok := true
		for _, o := range seen {
			ok = ok && o.Result.Holds()
		}
		if ok {
			return float64(time.Since(a.swap)) / float64(time.Millisecond)
		}
	}
	a.doc.Warnings = append(a.doc.Warnings, "a circuit that the trial cut does not answer after the undo either")
	return float64(time.Since(a.swap)) / float64(time.Millisecond)
}

// settle makes everything else agree with a transaction's file: the view's
// layer, the gate, the state and the index. It is repeatable at any point, so
// recover runs the very same after a crash. The journal comes last: until it has
// moved, somebody still knows that there is work to do.
func (w *Workflow) settle(ctx context.Context, p *place, t *txn.Txn, f guards.Facts) (warnings []string, err error) {
	row, err := w.row(ctx, t.ID())
	if err != nil {
		return nil, err
	}
	// What ran since it was committed began a new cycle, which is not the
	// transaction's any more.
	if *p, err = w.fold(ctx, *p); err != nil {
		return nil, err
	}
	// A trial is the business of its own transaction alone: an older one that is
	// settled meanwhile must not open its gate.
	status, trial, own := t.Status(), p.env.State == states.Trial, row.Cycle == p.env.Cycle
	if status == txn.Committed && trial && own {
		if err := p.view.Reset(ctx, backends.Reset{Paths: paths(t), Settled: true, Stop: true}); err != nil {
			// The host has the change; what stays in the layer equals it and is none.
			warnings = append(warnings, "the committed paths are still in the layer: "+err.Error())
		}
	}
	if status != txn.Incomplete && (own || !trial) {
		if err := execlog.Gate(p.spec.Dir, execlog.Open); err != nil {
			return warnings, err
		}
	}
	ageHost()
	if own && (trial || p.env.State == states.Committed && t.Reverted() != nil) {
		if err := w.decided(ctx, p, t, f); err != nil {
			return warnings, err
		}
	}
	return warnings, w.reindex(ctx, row, t)
}

// ageHost lets what was just exchanged on the host become older than a view that
// is mounted next. Change times come from a coarse clock, so a view takes nothing
// for certain that changed within a tick, 10 ms, of being mounted; a command right
// after a rollback would find its origins in doubt.
func ageHost() { time.Sleep(12 * time.Millisecond) }

// decided moves an environment as its transaction was decided.
func (w *Workflow) decided(ctx context.Context, p *place, t *txn.Txn, f guards.Facts) error {
	f.Env, f.Cycle = p.env.Name, p.env.Cycle
	m := move{facts: f, txn: t.ID(), data: map[string]any{"outcome": t.Status()}}
	switch t.Status() {
	case txn.Committed:
		// The verdict was written only because these guards held; it stands.
		m.on = states.Commit
		m.facts.Trial.Verified, m.facts.Trial.Keep, m.facts.Trial.Confirmed = true, true, true
		m.facts.Lease.Armed, m.facts.Lease.Held = true, true
	case txn.Undone, txn.Incomplete:
		m.on = states.Rollback
		m.facts.Reverse.Known = true // asked before the rollback began
		if v := t.Verdict(); v != nil && v.Decision == txn.Undo && v.By != txn.Applier && v.By != txn.Operator {
			m.on = states.Lapse
		}
		left, _ := t.Leftovers()
		m.facts.Undo = guards.Undo{Verified: t.Status() == txn.Undone, Left: obstacles(left)}
	default:
		return nil
	}
	if p.env.State == states.Trial { // a rollback later on decides no trial
		m.with = func(tx *journal.Tx, env *journal.Env, _ states.State) error {
			return w.event(tx, env.ID, t.ID(), EventTrialDecided, verdictData(t))
		}
	}
	_, err := w.do(ctx, p, m)
	if errors.As(err, new(*RefusedError)) {
		return nil // incomplete: it stays Trial, and every command says so
	}
	return err
}

// reindex brings a transaction's row up to its file.
func (w *Workflow) reindex(ctx context.Context, row journal.Txn, t *txn.Txn) error {
	now := string(t.Status())
	if row.Status == now {
		return nil
	}
	return w.store.Update(ctx, func(tx *journal.Tx) error {
		if t.Status() == txn.Undone || t.Status() == txn.Incomplete {
			if err := w.event(tx, row.Env, t.ID(), EventChangeReverted, verdictData(t)); err != nil {
				return err
			}
		}
		return tx.MoveTxn(row.ID, row.Status, now, nil)
	})
}

// index moves the row of a transaction along with a phase that is in its file.
func (a *attempt) index(ctx context.Context, from, to txn.Status, event string, data map[string]any) error {
	return a.store.Update(ctx, func(tx *journal.Tx) error {
		if err := a.event(tx, a.p.env.ID, a.txn.ID(), event, data); err != nil {
			return err
		}
		return tx.MoveTxn(a.txn.ID(), string(from), string(to), nil)
	})
}

func (w *Workflow) row(ctx context.Context, id string) (row journal.Txn, err error) {
	err = w.store.View(ctx, func(tx *journal.Tx) error {
		row, err = tx.Txn(id)
		return err
	})
	if errors.Is(err, journal.ErrNotFound) {
		err = hint(fmt.Errorf("%w: %s", ErrNoTxn, id), "netsandbox history")
	}
	return row, err
}

// abandon takes back an attempt that never became a trial.
func (a *attempt) abandon(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	if a.txn != nil {
		if _, err := a.txn.Undo(ctx, a.Host, txn.Applier, "refused before the trial began"); err != nil {
			// Without a verdict in its file the keeper is not released: it would take
			// this process for one gone wrong and kill it. It tries again when this
			// process has ended, and recover after it.
			return hint(err, "netsandbox recover")
		}
	}
	if a.lease != nil {
		errs = append(errs, a.lease.Release(string(txn.Undo)))
	}
	if a.txn != nil {
		errs = append(errs, a.reread(ctx, a.p))
		_, err := a.settle(ctx, a.p, a.txn, a.facts)
		errs = append(errs, err)
		a.doc.State = a.p.env.State
	}
	return errors.Join(errs...)
}

// reread brings the place up to the journal. A commit that reported an error can
// have taken effect all the same, and an environment that is in Trial there must
// leave it with its transaction.
func (w *Workflow) reread(ctx context.Context, p *place) error {
	return w.store.View(ctx, func(tx *journal.Tx) error {
		env, err := tx.EnvByID(p.env.ID)
		if err == nil {
			p.env = env
		}
		return err
	})
}

func (a *attempt) close() {
	if a.txn != nil {
		_ = a.txn.Close()
	}
	if a.host != nil {
		_ = a.host.Close()
	}
}

// last is what was decided last: the verdict, or that it was taken back later.
func last(t *txn.Txn) *txn.Verdict {
	if r := t.Reverted(); r != nil {
		return r
	}
	return t.Verdict()
}

func verdictData(t *txn.Txn) map[string]any {
	d := map[string]any{"status": t.Status()}
	if v := last(t); v != nil {
		d["decision"], d["by"], d["reason"] = v.Decision, v.By, v.Reason
	}
	if left, more := t.Leftovers(); len(left) > 0 {
		d["left"] = len(left) + more
	}
	return d
}

// paths lists what a transaction is about.
func paths(t *txn.Txn) []change.Path {
	var out []change.Path
	for _, s := range t.Steps() {
		out = append(out, s.Change.Path)
	}
	return out
}
