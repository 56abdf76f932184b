package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newInspectCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "inspect NAME",
		Short:             "Show everything that is recorded of an environment",
		Args:              cobra.ExactArgs(1),
		Annotations:       exits(),
		ValidArgsFunction: a.names,
		RunE: a.read(func(ctx context.Context, w *workflow.Workflow, args []string) error {
			doc, err := w.Inspect(ctx, args[0])
			return a.show(doc, err)
		}),
	}
}
