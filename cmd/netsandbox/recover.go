package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newRecoverCmd(a *app) *cobra.Command {
	var accept string
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Finish or undo whatever an earlier process left half done",
		Long: `Finish or undo whatever an earlier process left half done. Every command that
changes something does the same first, and a unit does it at boot.

An undo leaves alone what somebody else changed during the trial. Put it right
and run recover again, or keep what is there now with --accept TRANSACTION.`,
		Args:        cobra.NoArgs,
		Annotations: done("done, also when it undid something", exits(exitIncomplete, exitBusy)),
	}
	cmd.Flags().StringVar(&accept, "accept", "", "keep what an incomplete `TRANSACTION` left, and settle it")
	open := func(ctx context.Context, o workflow.Options) (*workflow.Workflow, error) {
		o.Accept = accept
		return workflow.Open(ctx, o)
	}
	cmd.RunE = a.with(open, func(_ context.Context, w *workflow.Workflow, _ []string) error {
		// Opening for a change has done it; what is left undone on the host is its
		// error, and what is left of an environment that ended is this one's.
		doc := w.Recovered()
		if err := a.print(doc); err != nil || len(doc.Left) == 0 {
			return err
		}
		return errors.New("not all that is left of ended environments could be deleted")
	})
	return cmd
}
