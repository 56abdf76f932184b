package workflow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// unreadable reports that a transaction's file cannot be understood, so that
// nothing can be undone from it. Waiting or trying again will not help.
func unreadable(err error) bool {
	return errors.Is(err, txn.ErrCorrupt) || errors.Is(err, txn.ErrForeign) || errors.Is(err, txn.ErrNewer) ||
		errors.Is(err, txn.ErrEmpty) || errors.Is(err, fs.ErrNotExist)
}

// writeOff deals with a transaction that lost its file: it names where the
// second copies of the originals are, and with --accept lets a person say that
// the host is right again. It is incomplete until then, never an error that
// keeps every other command from running its own course.
func (w *Workflow) writeOff(ctx context.Context, row journal.Txn, why error, doc *report.Recovered) error {
	if row.ID != w.Accept {
		doc.Done = append(doc.Done, report.Recovery{Txn: row.ID, Outcome: string(txn.Incomplete), Reason: why.Error()})
		doc.Left = append(doc.Left, backends.Leftover{
			Subject: row.ID, Found: why.Error(), Wanted: "the host as before it",
			Fix: fmt.Sprintf("restore by hand from %s, then: netsandbox recover --accept %s", filepath.Join(row.Path, "originals"), row.ID),
		})
		return nil
	}
	doc.Done = append(doc.Done, report.Recovery{Txn: row.ID, Outcome: string(txn.Undone), Reason: "settled by " + actor()})
	if err := w.release(ctx, row); err != nil {
		return err
	}
	return w.store.Update(ctx, func(tx *journal.Tx) error {
		if err := w.event(tx, row.Env, row.ID, EventRecoverFinished, map[string]any{"status": txn.Undone, "by": actor(), "reason": why.Error()}); err != nil {
			return err
		}
		return tx.MoveTxn(row.ID, row.Status, string(txn.Undone), nil)
	})
}

// release takes an environment out of a trial whose transaction is written off.
func (w *Workflow) release(ctx context.Context, row journal.Txn) error {
	var env journal.Env
	err := w.store.View(ctx, func(tx *journal.Tx) (err error) {
		env, err = tx.EnvByID(row.Env)
		return err
	})
	if err != nil || !env.Tombstone.IsZero() || env.State != states.Trial || env.Cycle != row.Cycle {
		return err
	}
	p, err := w.placed(env)
	if err != nil {
		return err
	}
	if err := execlog.Gate(p.spec.Dir, execlog.Open); err != nil {
		return err
	}
	_, err = w.do(ctx, &p, move{on: states.Rollback, facts: guards.Facts{Undo: guards.Undo{Verified: true}}, txn: row.ID})
	return err
}
