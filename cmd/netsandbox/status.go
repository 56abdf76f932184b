package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newStatusCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status NAME",
		Short: "Show the state of an environment and every guard of its next step",
		Long: `Show the state of an environment, the age of its evidence, what lives in its view,
and every guard of the next step with the command that satisfies it.`,
		Args:              here(1),
		Annotations:       exits(),
		ValidArgsFunction: a.names,
		RunE: a.read(func(ctx context.Context, w *workflow.Workflow, args []string) error {
			doc, err := w.Status(ctx, args[0])
			return a.show(doc, err)
		}),
	}
}
