package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// Prune gives up the first backup of every committed transaction, the originals
// that stand hidden on their own filesystems, and every plan that nothing needs
// any more. The second copy stays, so a rollback is still possible.
func (w *Workflow) Prune(ctx context.Context) ([]report.Transaction, error) {
	out := []report.Transaction{}
	var rows []journal.Txn
	keep := make(map[string]bool)
	err := w.store.View(ctx, func(tx *journal.Tx) (err error) {
		if rows, err = tx.Txns(journal.TxnFilter{Status: []string{string(txn.Committed)}}); err != nil {
			return err
		}
		envs, err := tx.Envs()
		for _, e := range envs {
			if last, err := tx.LastPlan(e.ID, e.Cycle); err == nil {
				keep[last.Digest] = true
			}
		}
		return err
	})
	if err != nil {
		return out, err
	}
	var errs []error
	for _, row := range rows {
		t, err := txn.Open(row.Path)
		if err == nil && !t.Pruned() {
			err = t.Prune(ctx, w.Host)
			out = append(out, txnDoc(row))
		}
		if t != nil {
			err = errors.Join(err, t.Close())
		}
		errs = append(errs, err)
	}
	errs = append(errs, w.plans().Prune(func(digest string) bool { return keep[digest] }))
	return out, errors.Join(errs...)
}

// pending is the transaction that is on the host for an environment, or was
// left incomplete; nil when there is none.
func (w *Workflow) pending(ctx context.Context, p place) (*report.Transaction, error) {
	var out *report.Transaction
	return out, w.store.View(ctx, func(tx *journal.Tx) error {
		rows, err := tx.Txns(journal.TxnFilter{Env: p.env.ID, Status: []string{
			string(txn.Armed), string(txn.Applying), string(txn.Trial), string(txn.Incomplete),
		}})
		if len(rows) > 0 {
			d := txnDoc(rows[0])
			out = &d
		}
		return err
	})
}

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
	for _, c := range frozen.Changes {
		if !below(string(c.Path), p.spec.Base) {
			return fmt.Errorf("stage %s: %w", c.Path, backends.ErrOutsideBase)
		}
		if c.New != nil && c.New.Type != change.Regular {
			continue // directories come with their files
		}
		cand := backends.Candidate{Delete: c.New == nil}
		if c.New != nil {
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
