package workflow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// strays finishes the transactions that the journal does not know. A row comes
// before its file, so the journal that had it was lost; what is on the host was
// put there all the same, and the file alone says how to take it back.
func (w *Workflow) strays(ctx context.Context, doc *report.Recovered) error {
	dirs, err := w.unknownTxns(ctx)
	if err != nil || len(dirs) == 0 {
		return err
	}
	now, err := w.Clock()
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		res, err := txn.Recover(context.WithoutCancel(ctx), dir, w.Host, now.BootID)
		switch {
		case errors.Is(err, txn.ErrBusy), err == nil && res.Did == txn.Nothing:
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("recover %s: %w", filepath.Base(dir), err))
			continue
		}
		if len(res.Leftovers) > 0 && res.ID == w.Accept {
			errs = append(errs, w.accept(ctx, journal.Txn{ID: res.ID, Path: dir}, &res))
		}
		r := report.Recovery{Txn: res.ID, Outcome: string(res.Status)}
		if res.Verdict != nil {
			r.Reason = res.Verdict.Reason
		}
		doc.Done, doc.Left = append(doc.Done, r), append(doc.Left, res.Leftovers...)
	}
	return errors.Join(errs...)
}

// unknownTxns lists directories of transactions without a row. The directory is
// read first: of a transaction that begins meanwhile the row is there by then.
func (w *Workflow) unknownTxns(ctx context.Context) ([]string, error) {
	list, err := os.ReadDir(filepath.Join(w.Dir, txnsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list transactions: %w", err)
	}
	known := map[string]bool{}
	err = w.store.View(ctx, func(tx *journal.Tx) error {
		rows, err := tx.Txns(journal.TxnFilter{})
		for _, r := range rows {
			known[filepath.Base(r.Path)] = true
		}
		return err
	})
	var dirs []string
	for _, e := range list {
		dir := filepath.Join(w.Dir, txnsDir, e.Name())
		if known[e.Name()] || !e.IsDir() {
			continue
		}
		t, oerr := txn.Open(dir)
		if errors.Is(oerr, txn.ErrEmpty) || errors.Is(oerr, fs.ErrNotExist) {
			continue // it died before it had written what it is for
		}
		if oerr == nil {
			err = errors.Join(err, t.Close())
		}
		dirs = append(dirs, dir) // what is wrong with it, its recovery says
	}
	return dirs, err
}

// withoutJournal takes back what is on the host undecided when the journal cannot
// be opened, because its disk is read-only or broken or because it is damaged:
// the transactions' files say all that is needed. Where the journal is another
// program's or another version's, so may everything else here be.
func withoutJournal(ctx context.Context, o Options, why error) error {
	for _, not := range []error{journal.ErrBusy, journal.ErrForeign, journal.ErrNewer, journal.ErrOlder} {
		if errors.Is(why, not) {
			return nil
		}
	}
	dirs, err := txn.List(filepath.Join(o.Dir, txnsDir))
	if err != nil || o.Host == nil || len(dirs) == 0 {
		return err
	}
	now, err := o.Clock()
	if err != nil {
		return err
	}
	var doc report.Recovered
	for _, dir := range dirs {
		res, err := txn.Recover(context.WithoutCancel(ctx), dir, o.Host, now.BootID)
		switch {
		case errors.Is(err, txn.ErrBusy):
		case err != nil:
			unfinished(&doc, filepath.Base(dir), err)
		case len(res.Leftovers) > 0:
			doc.Done = append(doc.Done, report.Recovery{Txn: res.ID, Outcome: string(res.Status)})
			doc.Left = append(doc.Left, res.Leftovers...)
		}
	}
	return incomplete(doc)
}
