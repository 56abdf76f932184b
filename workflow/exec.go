package workflow

import (
	"context"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
)

// fold makes the state account for the commands that exec ran since the last
// step. exec itself opens no journal, because that costs more than the sandbox;
// it leaves a durable log, and the state is never read without it.
func (w *Workflow) fold(ctx context.Context, p place) (place, error) {
	if p.env.State == states.Trial {
		return p, nil // the gate is shut; what slipped in before is folded afterwards
	}
	records, next, err := execlog.Since(p.spec.Dir, p.env.ExecFolded)
	if err != nil || next == p.env.ExecFolded {
		return p, err
	}
	on := states.Exec
	err = w.store.Update(ctx, func(tx *journal.Tx) error {
		to, _, err := decide(ctx, guards.Facts{Env: p.env.Name, State: p.env.State}, on)
		if err != nil {
			return err
		}
		now := p.env
		now.ExecFolded = next
		started := false
		for _, r := range records {
			name, data := EventExecExited, map[string]any{"id": r.ID, "status": r.Status}
			if r.Started() {
				started = true
				name, data = EventExecStarted, map[string]any{"id": r.ID, "argv0": r.Argv0, "argc": r.Argc, "uid": r.UID}
			}
			if err := w.event(tx, p.env.ID, "", name, data); err != nil {
				return err
			}
		}
		if started {
			now.State = to
			if begins(p.env.State, on) {
				now.Cycle++
			}
			if err := tx.RevokeGrants(p.env.ID, "a command ran in the view"); err != nil {
				return err
			}
		}
		was := p.env.State
		if p.env, err = tx.MoveEnv(p.env, now); err != nil || now.State == was {
			return err
		}
		return w.event(tx, p.env.ID, "", EventStateMoved, map[string]any{"from": was, "to": now.State, "on": on, "cycle": now.Cycle})
	})
	return p, err
}
