package workflow

import (
	"context"

	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

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
