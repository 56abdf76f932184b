package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newPlanCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "plan NAME",
		Short: "Record exactly what apply would do, with its digest",
		Long: `Record the exact, content-addressed list of what apply would do, and print its
digest, the processes that will end, what cannot be undone, and every blocker.`,
		Args:              cobra.ExactArgs(1),
		Annotations:       exits(exitBlocked, exitBusy),
		ValidArgsFunction: a.names,
		RunE: a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
			doc, err := w.Plan(ctx, args[0])
			return a.show(doc, err)
		}),
	}
}
