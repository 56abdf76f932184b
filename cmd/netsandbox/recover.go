package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newRecoverCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "recover",
		Short: "Finish or undo whatever an earlier process left half done",
		Long: `Finish or undo whatever an earlier process left half done. Every command that
changes something does the same first, and a unit does it at boot.`,
		Args:        cobra.NoArgs,
		Annotations: done("done, also when it undid something", exits(exitIncomplete, exitBusy)),
		RunE: a.change(func(ctx context.Context, w *workflow.Workflow, _ []string) error {
			doc, err := w.Recover(ctx)
			if err := a.show(doc, err); err != nil {
				return err
			}
			if len(doc.Left) == 0 {
				return nil
			}
			txn := "a transaction"
			for _, d := range doc.Done {
				if d.Outcome == "incomplete" {
					txn = d.Txn
				}
			}
			return &workflow.IncompleteError{Txn: txn, Left: doc.Left}
		}),
	}
}
