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
		RunE: a.change(func(_ context.Context, w *workflow.Workflow, _ []string) error {
			// Opening for a change has done it; what is left undone is its error.
			return a.print(w.Recovered())
		}),
	}
}
