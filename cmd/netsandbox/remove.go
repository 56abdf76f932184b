package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newRemoveCmd(a *app) *cobra.Command {
	var sure bool
	cmd := &cobra.Command{
		Use:               "remove NAME --yes",
		Short:             "Delete an environment that has no unapplied changes",
		Long:              "Delete an environment that has no unapplied changes. Transactions stay and can be rolled back.",
		Args:              cobra.ExactArgs(1),
		Annotations:       exits(exitBlocked, exitBusy),
		ValidArgsFunction: a.names,
	}
	cmd.Flags().BoolVar(&sure, "yes", false, "really delete it")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		if err := yes(sure, "remove deletes "+args[0]); err != nil {
			return err
		}
		doc, err := w.Remove(ctx, args[0])
		return a.show(doc, err)
	})
	return cmd
}
