package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newConnectionsCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "connections NAME",
		Short:             "Compare what could be reached at the start with what the candidate reaches",
		Args:              here(1),
		Annotations:       exits(),
		ValidArgsFunction: a.names,
		RunE: a.read(func(ctx context.Context, w *workflow.Workflow, args []string) error {
			doc, err := w.Connections(ctx, args[0])
			return a.show(doc, err)
		}),
	}
}
