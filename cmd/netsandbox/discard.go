package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newDiscardCmd(a *app) *cobra.Command {
	var sure bool
	cmd := &cobra.Command{
		Use:               "discard NAME --yes",
		Short:             "Delete an environment with its unapplied changes",
		Long:              "Delete an environment with its unapplied changes. Transactions stay and can be rolled back.",
		Args:              cobra.ExactArgs(1),
		Annotations:       exits(exitBlocked, exitBusy),
		ValidArgsFunction: a.names,
	}
	cmd.Flags().BoolVar(&sure, "yes", false, "really delete it")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		if err := yes(sure, "discard deletes every unapplied change of "+args[0]); err != nil {
			return err
		}
		doc, err := w.Discard(ctx, args[0])
		return a.show(doc, err)
	})
	return cmd
}
