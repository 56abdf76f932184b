package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newListCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "list",
		Short:       "List the environments",
		Args:        cobra.NoArgs,
		Annotations: exits(),
		RunE: a.read(func(ctx context.Context, w *workflow.Workflow, _ []string) error {
			docs, err := w.List(ctx)
			return a.show(docs, err)
		}),
	}
}
