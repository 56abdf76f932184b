package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newRevokeCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "revoke NAME",
		Short:             "Take recorded authority back",
		Args:              cobra.ExactArgs(1),
		Annotations:       exits(exitBlocked, exitBusy),
		ValidArgsFunction: a.names,
		RunE: a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
			doc, err := w.Revoke(ctx, args[0])
			return a.show(doc, err)
		}),
	}
}
