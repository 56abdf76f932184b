package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
)

// move is one attempt to move an environment, with everything that becomes true
// together with it.
type move struct {
	on    states.Trigger
	facts guards.Facts
	// record writes evidence, whatever the guards say.
	record func(tx *journal.Tx) error
	// with writes what belongs to the move itself; it may edit the row.
	with func(tx *journal.Tx, env *journal.Env, to states.State) error
	data map[string]any // of the state.moved event
	txn  string
}

// moved is how an attempt ended.
type moved struct {
	from, to states.State
	refusals []guards.Refusal // what demoted, or refused
}

// do makes one move in one journal transaction: the stored row must still be
// the one the facts were gathered on, and exec must have run nothing since. A
// refusal is recorded as an event and returned as [RefusedError].
func (w *Workflow) do(ctx context.Context, p *place, m move) (moved, error) {
	var out moved
	var refused error
	m.facts.Env, m.facts.Cycle = p.env.Name, p.env.Cycle
	err := w.store.Update(ctx, func(tx *journal.Tx) error {
		env, err := tx.EnvByID(p.env.ID)
		if err != nil {
			return err
		}
		if env.Version != p.env.Version || !env.Tombstone.IsZero() {
			return fmt.Errorf("environment %s: %w", env.Name, journal.ErrMoved)
		}
		if err := w.unrun(p); err != nil {
			return err
		}
		if err := w.instant(&m.facts); err != nil {
			return err
		}
		if m.record != nil {
			if err := m.record(tx); err != nil {
				return err
			}
		}
		m.facts.State = env.State
		out.from, out.to = env.State, env.State
		to, refusals, err := decide(ctx, m.facts, m.on)
		out.refusals = refusals
		if r, ok := errors.AsType[*RefusedError](err); ok {
			refused = err
			return w.refuse(tx, env, r, m.txn)
		}
		if err != nil {
			return err
		}
		next := env
		next.State = to
		if begins(env.State, m.on) {
			next.Cycle++
		}
		if m.with != nil {
			if err := m.with(tx, &next, to); err != nil {
				return err
			}
		}
		if p.env, err = tx.MoveEnv(env, next); err != nil {
			return err
		}
		out.to = to
		data := map[string]any{"from": out.from, "to": to, "on": m.on, "cycle": next.Cycle}
		for k, v := range m.data {
			data[k] = v
		}
		return w.event(tx, env.ID, m.txn, EventStateMoved, data)
	})
	if err != nil {
		return out, err
	}
	if refused != nil {
		return out, refused
	}
	w.Log.Info().Str("env", p.env.Name).Stringer("from", stringer(out.from)).Stringer("to", stringer(out.to)).
		Str("on", string(m.on)).Func(txnField(m.txn)).Msg(EventStateMoved)
	return out, nil
}

// unrun fails with ErrMoved when exec appended to its log since the place was
// entered. Reading the length inside the transaction is what keeps the state
// from being behind what was run.
func (w *Workflow) unrun(p *place) error {
	n, err := execlog.Length(p.spec.Dir)
	if err != nil {
		return err
	}
	if n != p.env.ExecFolded && p.env.State != states.Trial {
		return fmt.Errorf("environment %s ran a command: %w", p.env.Name, journal.ErrMoved)
	}
	return nil
}

// begins reports whether a move opens a new cycle: the first change after a
// transaction was decided.
func begins(from states.State, on states.Trigger) bool {
	return (from == states.Committed || from == states.RolledBack) && (on == states.Stage || on == states.Exec)
}

// again runs a step until nothing moved under it. Somebody who execs without
// pause must not keep a step busy for ever, so it gives up as busy.
func again(ctx context.Context, step func() error) error {
	var err error
	for range 5 {
		if err = step(); !errors.Is(err, journal.ErrMoved) || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrBusy, err)
}

// refuse records a refusal; the transaction it is in commits.
func (w *Workflow) refuse(tx *journal.Tx, env journal.Env, r *RefusedError, txn string) error {
	for _, one := range r.Refusals {
		w.Log.Warn().Str("env", env.Name).Str("guard", string(one.Guard)).Str("on", string(r.On)).
			Str("err", one.String()).Func(txnField(txn)).Msg(EventGuardRefused)
		err := w.event(tx, env.ID, txn, EventGuardRefused, map[string]any{
			"on": r.On, "from": r.From, "guard": one.Guard, "reason": one.Reason,
			"subjects": append([]string{}, one.Subjects...), "fix": one.Fix, // a list, also without subjects
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// event appends one event to the chain.
func (w *Workflow) event(tx *journal.Tx, env, txn, name string, data map[string]any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("append event %s: %w", name, err)
	}
	_, err = tx.Event(journal.Event{Env: env, Txn: txn, Event: name, Actor: actor(), Data: b})
	return err
}

type stringer states.State

func (s stringer) String() string { return string(s) }

func txnField(txn string) func(*zerolog.Event) {
	return func(e *zerolog.Event) {
		if txn != "" {
			e.Str("txn", txn)
		}
	}
}
