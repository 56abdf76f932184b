package workflow

import (
	"context"
	"os"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// StageOptions say which candidate to put where.
type StageOptions struct {
	Path   string
	From   *os.File // opened with the caller's rights; nil stages the host's own file
	Delete bool
	// FromTransaction stages every path as a transaction wanted it.
	FromTransaction string
}

// Stage puts a candidate for one path into the layer.
func (w *Workflow) Stage(ctx context.Context, name string, o StageOptions) (report.Staged, error) {
	var doc report.Staged
	err := again(ctx, func() error {
		p, err := w.enter(ctx, name)
		if err != nil {
			return err
		}
		unlock, err := w.lock(p, execlog.Shared)
		if err != nil {
			return err
		}
		defer unlock()
		// Refused before anything is written: a trial's layer must stay as planned.
		if _, _, err := decide(ctx, guards.Facts{Env: name, State: p.env.State}, states.Stage); err != nil {
			return err
		}
		if o.FromTransaction != "" {
			return w.stageTransaction(ctx, &p, o.FromTransaction, &doc)
		}
		path, err := resolvePath(p.spec.Base, o.Path)
		if err != nil {
			return err
		}
		if err := p.view.Stage(ctx, path, backends.Candidate{From: o.From, Delete: o.Delete}); err != nil {
			return err
		}
		doc = report.Staged{Schema: report.Schema("staged"), Name: name, Path: path, Candidate: path, Deleted: o.Delete}
		return w.staged(ctx, &p, &doc)
	})
	return doc, err
}

// staged moves an environment whose layer was staged into.
func (w *Workflow) staged(ctx context.Context, p *place, doc *report.Staged) error {
	m, err := w.do(ctx, p, move{on: states.Stage, with: func(tx *journal.Tx, env *journal.Env, _ states.State) error {
		if err := tx.RevokeGrants(env.ID, "a candidate was staged"); err != nil {
			return err
		}
		return w.event(tx, env.ID, "", EventChangeStaged, map[string]any{"path": doc.Path, "deleted": doc.Deleted})
	}})
	doc.State = m.to
	return err
}
