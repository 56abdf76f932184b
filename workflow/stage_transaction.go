package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// stageTransaction stages every path as a transaction wanted it, from the plan
// that it applied.
func (w *Workflow) stageTransaction(ctx context.Context, p *place, id string, doc *report.Staged) error {
	row, err := w.row(ctx, id)
	if err != nil {
		return err
	}
	frozen, err := w.plans().Open(row.Plan)
	if err != nil {
		return hint(fmt.Errorf("the plan of %s is gone: %w", id, err), "netsandbox stage %s PATH --from FILE", p.env.Name)
	}
	var gone []change.Path // what went with a directory needs no staging of its own
	for _, c := range frozen.Changes {
		if !below(string(c.Path), p.spec.Base) {
			return fmt.Errorf("stage %s: %w", c.Path, backends.ErrOutsideBase)
		}
		if slices.ContainsFunc(gone, func(d change.Path) bool { return below(string(c.Path), string(d)) }) {
			continue
		}
		if c.Old != nil && c.Old.Type == change.Directory && (c.New == nil || c.New.Type != change.Directory) {
			gone = append(gone, c.Path)
		}
		cand := backends.Candidate{Delete: c.New == nil, Like: c.New}
		if c.New != nil && c.New.Type == change.Regular && c.New.Link == "" {
			b, err := frozen.Open(c.New.SHA256)
			if err != nil {
				return err
			}
			cand.From, _ = b.(*os.File) // a blob is a file; only a test's store is not
		}
		err = p.view.Stage(ctx, c.Path, cand)
		if cand.From != nil {
			err = errors.Join(err, cand.From.Close())
		}
		if err != nil {
			return err
		}
		*doc = report.Staged{Schema: report.Schema("staged"), Name: p.env.Name, Path: c.Path, Candidate: c.Path, Deleted: cand.Delete, State: states.Staged}
	}
	return w.staged(ctx, p, doc)
}
