package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/hostlock"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// Rollback restores the host from committed transactions, in the given order.
// It works after the environment is gone, from the transaction's file alone.
func (w *Workflow) Rollback(ctx context.Context, ids []string) ([]report.Applied, error) {
	var out []report.Applied
	if len(ids) == 0 {
		return out, fmt.Errorf("%w: name a transaction", ErrUsage)
	}
	for _, id := range ids {
		var doc report.Applied
		err := again(ctx, func() (err error) {
			doc, err = w.rollback(ctx, id)
			return err
		})
		out = append(out, doc)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func (w *Workflow) rollback(ctx context.Context, id string) (report.Applied, error) {
	doc := report.Applied{Schema: report.Schema("applied"), Txn: id, Circuits: []report.Circuit{}}
	row, err := w.row(ctx, id)
	if err != nil {
		return doc, err
	}
	doc.Name = row.EnvName
	var env journal.Env
	err = w.store.View(ctx, func(tx *journal.Tx) (err error) {
		env, err = tx.EnvByID(row.Env) // of an environment that ended, too
		return err
	})
	if err != nil {
		return doc, err
	}
	// The same base as the trial had: it is where both lock the filesystem.
	host, err := hostlock.Take(hostlock.Holder{PID: os.Getpid(), UID: uint32(os.Geteuid()), Env: row.EnvName, Base: env.Base, Txn: id})
	if busy, ok := errors.AsType[*hostlock.BusyError](err); ok {
		return doc, hint(fmt.Errorf("%w: %w", ErrBusy, busy), "netsandbox history")
	}
	if err != nil {
		return doc, err
	}
	defer host.Close()
	t, err := txn.Open(row.Path)
	if err != nil {
		return doc, err
	}
	defer t.Close()
	switch t.Status() {
	case txn.Undone:
		describe(&doc, t)
		doc.Outcome = "already_" + doc.Outcome
		return doc, nil
	case txn.Committed, txn.Incomplete:
	default:
		return doc, hint(fmt.Errorf("%w: %s is %s", ErrBusy, id, t.Status()), "netsandbox wait %s", id)
	}
	if t.Forgotten() {
		return doc, w.recordRefusal(ctx, place{env: env}, pruned(row, env))
	}
	f, err := w.reverse(ctx, row, t, env)
	if err != nil {
		return doc, err
	}
	if r := guards.Check([]states.Guard{states.Reversible}, f); len(r) > 0 {
		return doc, w.recordRefusal(ctx, place{env: env}, &RefusedError{Env: row.EnvName, From: env.State, On: states.Rollback, Refusals: r})
	}
	// The row stops being final before the file does: a crash in between leaves
	// work that recover sees.
	if err := w.reopenRow(ctx, &row); err != nil {
		return doc, err
	}
	left, err := t.Rollback(ctx, w.Host, txn.Operator, "asked for by "+actor())
	if err != nil {
		left = append(left, backends.Leftover{Subject: id, Found: err.Error(), Wanted: "the host as before", Fix: "netsandbox recover"})
	}
	doc.Left, doc.Changes = left, len(t.Steps())
	serr := w.settleRow(ctx, row, t, env)
	if len(left) > 0 {
		doc.Outcome = "incomplete"
		return doc, errors.Join(&IncompleteError{Txn: id, Left: left}, serr)
	}
	if serr != nil { // the host is as before, which is what was asked for
		doc.Warnings = append(doc.Warnings, "the journal does not know of the rollback until netsandbox recover: "+serr.Error())
	}
	doc.Outcome, doc.State = "rolled_back", states.RolledBack
	return doc, nil
}

// pruned is the answer to whoever wants back what was given up.
func pruned(row journal.Txn, env journal.Env) error {
	return &RefusedError{Env: row.EnvName, From: env.State, On: states.Rollback, Refusals: []guards.Refusal{{
		Guard: states.Reversible, Reason: "its originals were given up by history --prune, so there is nothing to restore from",
		Subjects: []string{row.ID}, Fix: "netsandbox stage " + row.EnvName + " PATH --from FILE",
	}}}
}

// reverse gathers whether a transaction can be taken back: that no newer one
// covers the same paths or fills directories that it made, and that the host is still as committed.
func (w *Workflow) reverse(ctx context.Context, row journal.Txn, t *txn.Txn, env journal.Env) (guards.Facts, error) {
	f := guards.Facts{Env: row.EnvName, State: env.State, Cycle: row.Cycle}
	f.Reverse.Known = true
	var newer []journal.Txn
	err := w.store.View(ctx, func(tx *journal.Tx) error {
		all, err := tx.Txns(journal.TxnFilter{Status: []string{string(txn.Committed)}})
		for _, x := range all {
			if x.Seq > row.Seq {
				newer = append(newer, x)
			}
		}
		return err
	})
	if err != nil {
		return f, err
	}
	touches := claims(t)
	for _, x := range newer {
		o, err := txn.Open(x.Path)
		if err != nil {
			return f, err
		}
		if slices.ContainsFunc(paths(o), touches) {
			f.Reverse.Newer = append(f.Reverse.Newer, x.ID)
		}
		o.Close()
	}
	if t.Status() != txn.Committed {
		return f, nil // an undo that began is finished, whatever drifted
	}
	left, err := t.Verify(ctx, w.Host)
	f.Reverse.Drifted = obstacles(left)
	return f, err
}

// claims returns whether a path is one that taking t back changes: its own, and
// everything below a directory that it made, which goes only when it is empty.
func claims(t *txn.Txn) func(change.Path) bool {
	mine, made := map[change.Path]bool{}, map[change.Path]bool{}
	for _, s := range t.Steps() {
		c := s.Change
		mine[c.Path] = true
		if c.New != nil && c.New.Type == change.Directory && (c.Old == nil || c.Old.Type != change.Directory) {
			made[c.Path] = true
		}
	}
	return func(p change.Path) bool {
		if mine[p] {
			return true
		}
		for up := path.Dir(string(p)); up != "/" && up != "."; up = path.Dir(up) {
			if made[change.Path(up)] {
				return true
			}
		}
		return false
	}
}

// reopenRow marks a committed transaction as being taken back.
func (w *Workflow) reopenRow(ctx context.Context, row *journal.Txn) error {
	if row.Status != string(txn.Committed) {
		return nil
	}
	err := w.store.Update(ctx, func(tx *journal.Tx) error {
		return tx.MoveTxn(row.ID, row.Status, string(txn.Incomplete), nil)
	})
	row.Status = string(txn.Incomplete)
	return err
}

// settleRow makes the environment of a transaction agree with it, when there
// still is one, and the index.
func (w *Workflow) settleRow(ctx context.Context, row journal.Txn, t *txn.Txn, env journal.Env) error {
	if !env.Tombstone.IsZero() {
		return w.reindex(ctx, row, t)
	}
	p, err := w.placed(env)
	if err != nil {
		return err
	}
	_, err = w.settle(ctx, &p, t, guards.Facts{})
	return err
}
