package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newWaitCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "wait TRANSACTION",
		Short:       "Wait until a transaction is decided",
		Args:        cobra.ExactArgs(1),
		Annotations: done("committed", exits(exitUndone, exitIncomplete)),
		RunE: a.read(func(ctx context.Context, w *workflow.Workflow, args []string) error {
			doc, err := w.Wait(ctx, args[0])
			return a.applied(doc, err)
		}),
	}
}
