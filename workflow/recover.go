package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// Recover finishes or undoes whatever an earlier process left half done: every
// transaction whose file says that there is work, every environment whose state
// lags behind, every directory among the tombstones, every kernel object whose
// process was killed. Every verb that changes something runs it first. A
// transaction that a living process is at is left to that process.
func (w *Workflow) Recover(ctx context.Context) (report.Recovered, error) {
	doc := report.Recovered{Schema: report.Schema("recovered"), Done: []report.Recovery{}, Swept: []string{}, Left: []backends.Leftover{}}
	if w.Host == nil {
		return doc, nil
	}
	rows, err := w.openTxns(ctx)
	if err != nil {
		return doc, err
	}
	var errs []error
	for _, row := range rows {
		errs = append(errs, w.recover(ctx, row, &doc))
	}
	errs = append(errs, w.strays(ctx, &doc), w.reopen(ctx), w.exhume(ctx, &doc), w.tidy(ctx, &doc))
	return doc, errors.Join(append(errs, incomplete(doc))...)
}

// incomplete is the error for what could not be recovered. It names the oldest
// transaction that left something; when that is settled, the next one is named.
func incomplete(doc report.Recovered) error {
	for _, r := range doc.Done {
		if r.Outcome == string(txn.Incomplete) {
			return &IncompleteError{Txn: r.Txn, Left: doc.Left}
		}
	}
	return nil
}

// openTxns lists the transactions whose row is not final, oldest first.
func (w *Workflow) openTxns(ctx context.Context) ([]journal.Txn, error) {
	var rows []journal.Txn
	return rows, w.store.View(ctx, func(tx *journal.Tx) error {
		all, err := tx.Txns(journal.TxnFilter{Status: []string{
			string(txn.Prepared), string(txn.Armed), string(txn.Applying), string(txn.Trial), string(txn.Incomplete),
		}})
		for i := len(all) - 1; i >= 0; i-- {
			rows = append(rows, all[i])
		}
		return err
	})
}

func (w *Workflow) recover(ctx context.Context, row journal.Txn, doc *report.Recovered) error {
	now, err := w.Clock()
	if err != nil {
		return err
	}
	if missing, err := begun(row); err != nil && row.Status != string(txn.Prepared) {
		return w.writeOff(ctx, row, err, doc)
	} else if missing {
		return w.neverBegun(ctx, row)
	}
	// The host does not wait for the journal, whose disk may be what is broken.
	told := w.store.Update(ctx, func(tx *journal.Tx) error {
		return w.event(tx, row.Env, row.ID, EventRecoverStarted, map[string]any{"status": row.Status})
	})
	res, err := txn.Recover(context.WithoutCancel(ctx), row.Path, w.Host, now.BootID)
	if errors.Is(err, txn.ErrBusy) {
		doc.Busy = append(doc.Busy, row.ID)
		return told
	}
	if unreadable(err) {
		return errors.Join(told, w.writeOff(ctx, row, err, doc))
	}
	if err != nil || told != nil {
		unfinished(doc, row.ID, errors.Join(err, told))
		return nil
	}
	if _, err := os.Lstat(row.Path); errors.Is(err, os.ErrNotExist) {
		return w.neverBegun(ctx, row)
	}
	if len(res.Leftovers) > 0 && row.ID == w.Accept {
		if err := w.accept(ctx, row, &res); err != nil {
			return err
		}
	}
	r := report.Recovery{Txn: row.ID, Outcome: string(res.Status)}
	if res.Verdict != nil {
		r.Reason = res.Verdict.Reason
	}
	doc.Done, doc.Left = append(doc.Done, r), append(doc.Left, res.Leftovers...)
	return w.resettle(ctx, row)
}

// unfinished adds a transaction whose recovery has to be tried again.
func unfinished(doc *report.Recovered, id string, why error) {
	doc.Done = append(doc.Done, report.Recovery{Txn: id, Outcome: string(txn.Incomplete), Reason: why.Error()})
	doc.Left = append(doc.Left, backends.Leftover{Subject: id, Found: why.Error(), Wanted: "the host as before", Fix: "netsandbox recover"})
}

// begun looks for the file of a transaction. The row is the intent and comes
// first; it says armed only after the file did, so while it says prepared a
// missing file means that nothing happened.
func begun(row journal.Txn) (missing bool, err error) {
	t, err := txn.Open(row.Path)
	if err == nil {
		return false, t.Close()
	}
	if _, serr := os.Lstat(row.Path); errors.Is(serr, os.ErrNotExist) {
		return true, err
	}
	if !unreadable(err) {
		return false, nil // whatever it is, recovering says it
	}
	return false, err
}

// neverBegun closes the row of a transaction that did not get to its file.
func (w *Workflow) neverBegun(ctx context.Context, row journal.Txn) error {
	return w.store.Update(ctx, func(tx *journal.Tx) error {
		return tx.MoveTxn(row.ID, row.Status, string(txn.Undone), nil)
	})
}

// accept settles an incomplete undo: somebody looked at what is left and wants
// it. The originals that found no way back are given up with it.
func (w *Workflow) accept(ctx context.Context, row journal.Txn, res *txn.Result) error {
	t, err := txn.Open(row.Path)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Accept(ctx, w.Host, "what is left was accepted by "+actor()); err != nil {
		return fmt.Errorf("accept what %s left: %w", row.ID, err)
	}
	res.Status, res.Leftovers = t.Status(), nil
	return nil
}

// resettle makes the environment of a recovered transaction agree with it. It
// does so alone: keeper and command recover at the same time, and the slower one
// must not drop from the layer what a user put there after the faster one. The
// host itself was seen to before and waits for no lock.
func (w *Workflow) resettle(ctx context.Context, row journal.Txn) error {
	lock, err := execlog.EnvLock(w.envDir(row.EnvName), execlog.Exclusive, false)
	switch {
	case errors.Is(err, execlog.ErrBusy):
		return nil // whoever has it is at it, or the next command finds it again
	case errors.Is(err, execlog.ErrGone): // the environment has ended
	case err != nil:
		return err
	default:
		defer lock.Close()
	}
	if row, err = w.row(ctx, row.ID); err != nil || row.Status == string(txn.Committed) || row.Status == string(txn.Undone) {
		return err
	}
	t, err := txn.Open(row.Path)
	if err != nil {
		return err
	}
	defer t.Close()
	var env journal.Env
	err = w.store.View(ctx, func(tx *journal.Tx) (err error) {
		env, err = tx.EnvByID(row.Env)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.settleRow(ctx, row, t, env); err != nil {
		return err
	}
	return w.store.Update(ctx, func(tx *journal.Tx) error {
		return w.event(tx, row.Env, row.ID, EventRecoverFinished, verdictData(t))
	})
}

// reopen opens gates that a crash left shut: between the gate and the state of
// an attempt that never began.
func (w *Workflow) reopen(ctx context.Context) error {
	var envs []journal.Env
	err := w.store.View(ctx, func(tx *journal.Tx) (err error) {
		envs, err = tx.Envs()
		return err
	})
	for _, e := range envs {
		if e.State == states.Trial || !ready(e) {
			continue
		}
		if shut, gerr := execlog.Shut(w.envDir(e.Name)); gerr != nil || !shut {
			continue
		}
		// An apply that is under way holds the lock, and its gate is right.
		l, lerr := execlog.EnvLock(w.envDir(e.Name), execlog.Exclusive, false)
		if lerr != nil {
			continue
		}
		err = errors.Join(err, execlog.Gate(w.envDir(e.Name), execlog.Open), l.Close())
	}
	return err
}

// exhume finishes discards: what lies among the tombstones, or under the name of
// an environment that ended, is no live environment's. One that cannot be deleted
// yet is named, and keeps no other command from its work: it is nothing of the
// host's.
func (w *Workflow) exhume(ctx context.Context, doc *report.Recovered) error {
	var ended []journal.Env
	live := map[string]bool{}
	err := w.store.View(ctx, func(tx *journal.Tx) (err error) {
		if ended, err = tx.EndedEnvs(); err != nil {
			return err
		}
		envs, err := tx.Envs()
		for _, e := range envs {
			live[e.Name] = true
		}
		return err
	})
	for _, e := range ended {
		if dir := w.envDir(e.Name); !live[e.Name] && identity(dir) == e.ID {
			if aerr := w.putAside(dir, e.ID); aerr != nil {
				doc.Left = append(doc.Left, backends.Leftover{Subject: dir, Found: aerr.Error(), Wanted: "nothing", Fix: "netsandbox recover"})
				continue
			}
		}
		if _, serr := os.Lstat(w.tomb(e.ID)); serr != nil {
			continue // long gone
		}
		p, perr := w.placed(e)
		if perr != nil {
			continue // another user's
		}
		if berr := w.erase(ctx, p.spec); berr != nil {
			doc.Left = append(doc.Left, backends.Leftover{Subject: w.tomb(e.ID), Found: berr.Error(), Wanted: "nothing", Fix: "netsandbox recover"})
			continue
		}
		doc.Swept = append(doc.Swept, "environment "+e.Name)
	}
	return err
}
