package workflow

import (
	"context"

	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// List returns the live environments by name.
func (w *Workflow) List(ctx context.Context) ([]report.Environment, error) {
	out := []report.Environment{}
	if w.store == nil {
		return out, nil
	}
	return out, w.store.View(ctx, func(tx *journal.Tx) error {
		envs, err := tx.Envs()
		for _, e := range envs {
			out = append(out, line(e))
		}
		return err
	})
}

func line(e journal.Env) report.Environment {
	return report.Environment{
		Schema: report.Schema("environment"), Name: e.Name, ID: e.ID, State: e.State, Cycle: e.Cycle, Owner: e.UID,
		Backend: e.Backend, Base: e.Base, Description: e.Description, Created: e.Created.At,
	}
}
