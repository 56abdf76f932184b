package workflow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/netsandbox/netsandbox/workflow/hostlock"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// PruneOptions say what to give up.
type PruneOptions struct {
	// OlderThan keeps what was decided more recently. Zero gives up all.
	OlderThan time.Duration
	// KeepCopies gives up only what is hidden beside the targets. A rollback is
	// still possible then, from the copies in the state directory.
	KeepCopies bool
}

// Prune gives up what decided transactions keep, the originals hidden beside
// their targets and the second copies, and the plans that nothing needs any more.
// What was pruned cannot be rolled back; it stays in the history. Nothing of a
// transaction that is undecided or incomplete goes, and none of it while a trial
// has the host.
func (w *Workflow) Prune(ctx context.Context, o PruneOptions) (report.Pruned, error) {
	doc := report.Pruned{Schema: report.Schema("pruned"), Transactions: []report.PrunedTxn{}, Kept: []report.KeptTxn{}}
	host, err := hostlock.Take(hostlock.Holder{PID: os.Getpid(), UID: uint32(os.Geteuid()), Base: w.Dir})
	if busy, ok := errors.AsType[*hostlock.BusyError](err); ok {
		return doc, hint(fmt.Errorf("%w: %w", ErrBusy, busy), "netsandbox history")
	}
	if err != nil {
		return doc, err
	}
	defer host.Close()
	var rows []journal.Txn
	err = w.store.View(ctx, func(tx *journal.Tx) (err error) {
		rows, err = tx.Txns(journal.TxnFilter{})
		return err
	})
	if err != nil {
		return doc, err
	}
	now, err := w.Clock()
	if err != nil {
		return doc, err
	}
	var errs []error
	needed := map[string]bool{}
	for _, row := range rows {
		kept, err := w.prune(ctx, row, o, now.At.Add(-o.OlderThan), &doc)
		if kept != "" || o.KeepCopies {
			needed[row.Plan] = true
		}
		if kept != "" && kept != recent {
			doc.Kept = append(doc.Kept, report.KeptTxn{ID: row.ID, Env: row.EnvName, Why: kept})
		}
		errs = append(errs, err)
	}
	return doc, errors.Join(append(errs, w.prunePlans(ctx, needed, &doc))...)
}

// recent is why most transactions are kept, and nobody needs to be told.
const recent = "decided recently"

// prune gives up one transaction, or says why it is kept.
func (w *Workflow) prune(ctx context.Context, row journal.Txn, o PruneOptions, before time.Time, doc *report.Pruned) (kept string, err error) {
	t, err := txn.Open(row.Path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, txn.ErrEmpty) {
		return "", nil // it never had anything
	}
	if err != nil {
		return err.Error(), nil
	}
	defer t.Close()
	switch {
	case row.Status != string(t.Status()), t.Status() != txn.Committed && t.Status() != txn.Undone:
		return "it is " + string(t.Status()), nil
	case last(t).At.After(before):
		return recent, nil
	}
	dirs, give := held(t), t.Forget
	if o.KeepCopies {
		dirs, give = dirs[1:], t.Prune
	}
	freed := usage(dirs...)
	if spent(t, o, freed) {
		return "", nil
	}
	err = give(ctx, w.Host)
	if errors.Is(err, txn.ErrBusy) {
		return "another process is at it", nil
	}
	if err != nil {
		return "", fmt.Errorf("prune %s: %w", row.ID, err)
	}
	freed -= usage(dirs...)
	doc.FreedBytes += freed
	doc.Transactions = append(doc.Transactions, report.PrunedTxn{
		ID: row.ID, Env: row.EnvName, Status: string(t.Status()), FreedBytes: freed, Paths: paths(t), Reversible: o.KeepCopies,
	})
	return "", w.store.Update(ctx, func(tx *journal.Tx) error {
		return w.event(tx, row.Env, row.ID, EventBackupPruned, map[string]any{"status": t.Status(), "freed_bytes": freed, "reversible": o.KeepCopies})
	})
}

// spent reports that a decided transaction has nothing more to give up. What
// cannot be seen occupies nothing, so of a committed one its file says it.
func spent(t *txn.Txn, o PruneOptions, freed int64) bool {
	if t.Status() == txn.Undone {
		return o.KeepCopies || freed == 0
	}
	return freed == 0 && t.Finished() && (t.Forgotten() || o.KeepCopies && t.Pruned())
}

// held lists the directories in which a transaction keeps originals, that of the
// second copies first.
func held(t *txn.Txn) []string {
	dirs := []string{filepath.Join(t.Dir(), "originals")}
	seen := map[string]bool{}
	for _, s := range t.Steps() {
		if d := string(s.Place.Dir); d != "" && !seen[d] {
			seen[d] = true
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// prunePlans removes the plans that no environment goes by and no transaction
// that can still be rolled back was made from. A plan that the journal does not
// know yet is being recorded by another command, unless it is old.
func (w *Workflow) prunePlans(ctx context.Context, needed map[string]bool, doc *report.Pruned) error {
	dir := filepath.Join(w.Dir, plansDir)
	was := usage(dir)
	err := w.store.View(ctx, func(tx *journal.Tx) error {
		envs, err := tx.Envs()
		if err != nil {
			return err
		}
		for _, e := range envs {
			last, err := tx.LastPlan(e.ID, e.Cycle)
			if err == nil {
				needed[last.Digest] = true
			} else if !errors.Is(err, journal.ErrNotFound) {
				return err
			}
		}
		return w.plans().Prune(func(digest string) bool {
			keep := needed[digest] || !tx.PlanKnown(digest) && w.fresh(digest)
			if !keep {
				doc.Plans++
			}
			return keep
		})
	})
	doc.FreedBytes += was - usage(dir)
	return err
}

// forgetPlans removes what only an environment needed that has ended: bytes of
// its candidates are frozen in its plans. Plans of transactions stay, from which
// they can be staged again.
func (w *Workflow) forgetPlans(ctx context.Context) error {
	needed := map[string]bool{}
	err := w.store.View(ctx, func(tx *journal.Tx) error {
		rows, err := tx.Txns(journal.TxnFilter{})
		for _, r := range rows {
			needed[r.Plan] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	return w.prunePlans(ctx, needed, &report.Pruned{})
}

// fresh reports a plan that was published in the last minutes.
func (w *Workflow) fresh(digest string) bool {
	dir, err := w.plans().Path(digest)
	if err != nil {
		return false
	}
	fi, err := os.Lstat(dir)
	return err == nil && time.Since(fi.ModTime()) < 10*time.Minute
}

// usage is what directories occupy on their disks, as far as it can be seen.
func usage(dirs ...string) (n int64) {
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if fi, err := d.Info(); err == nil {
				if st, ok := fi.Sys().(*syscall.Stat_t); ok {
					n += st.Blocks * 512
				}
			}
			return nil
		})
	}
	return n
}
