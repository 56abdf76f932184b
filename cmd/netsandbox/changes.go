package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newChangesCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "changes NAME",
		Short:             "List what differs from the host",
		Args:              here(1),
		Annotations:       exits(),
		ValidArgsFunction: a.names,
		RunE: a.read(func(ctx context.Context, w *workflow.Workflow, args []string) error {
			doc, err := w.Changes(ctx, args[0])
			return a.show(doc, err)
		}),
	}
}
