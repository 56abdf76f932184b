package workflow

import (
	"context"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// Tidy removes what killed processes left in the host's network. Nobody waits
// for it and nothing else can meet it, so a verb that only reports does so as
// well and says nothing of it; what could not be removed, doctor names.
func (w *Workflow) Tidy(ctx context.Context) {
	if t, ok := w.Backend.(backends.Tidier); ok {
		_, _ = t.Tidy(ctx, nil)
	}
}

// tidy removes what killed processes of any environment left in the host's
// network, and ends what they left of the environments in this state directory.
// What cannot be removed yet is named and keeps no command from its work.
func (w *Workflow) tidy(ctx context.Context, doc *report.Recovered) error {
	t, ok := w.Backend.(backends.Tidier)
	if !ok {
		return nil
	}
	var envs []journal.Env
	err := w.store.View(ctx, func(tx *journal.Tx) (err error) {
		envs, err = tx.Envs()
		return err
	})
	if err != nil {
		return err
	}
	var specs []backends.Spec
	for _, e := range envs {
		if p, err := w.placed(e); err == nil && ready(e) { // another user's are that user's
			specs = append(specs, p.spec)
		}
	}
	gone, err := t.Tidy(ctx, specs)
	for _, r := range gone {
		doc.Swept = append(doc.Swept, r.Kind+" "+r.Name)
	}
	if err != nil {
		doc.Left = append(doc.Left, backends.Leftover{
			Subject: "what killed environments left", Found: err.Error(), Wanted: "nothing", Fix: "netsandbox recover",
		})
	}
	return nil
}
