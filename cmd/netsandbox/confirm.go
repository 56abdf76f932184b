package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newConfirmCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "confirm TRANSACTION NONCE",
		Short: "Say that you can still get in, over another connection",
		Long: `Settle a trial that was applied with --confirm-within: a human says "I can still
get in", over another connection than the one that ran apply. The nonce was
printed there.`,
		Args:        cobra.ExactArgs(2),
		Annotations: exits(exitBlocked, exitUndone, exitIncomplete, exitBusy),
		RunE: a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
			doc, err := w.Confirm(ctx, args[0], args[1])
			return a.applied(doc, err)
		}),
	}
}
