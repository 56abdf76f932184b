package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newDiffCmd(a *app) *cobra.Command {
	var secrets bool
	cmd := &cobra.Command{
		Use:   "diff NAME [PATH]",
		Short: "Show what differs from the host as unified diffs",
		Long: `Show what differs from the host as unified diffs. Binary files, modes, owners and
types are told in words; private keys are masked unless --secrets.`,
		Args:              here(2),
		Annotations:       exits(),
		ValidArgsFunction: a.names,
	}
	cmd.Flags().BoolVar(&secrets, "secrets", false, "show private keys")
	cmd.RunE = a.read(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		path := ""
		if len(args) > 1 {
			path = args[1]
		}
		doc, err := w.Diff(ctx, args[0], path, secrets)
		return a.show(doc, err)
	})
	return cmd
}
