package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newHistoryCmd(a *app) *cobra.Command {
	var prune bool
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List all transactions, newest first",
		Long: `List all transactions, newest first. --prune gives up the first backup of those
that are committed, the originals beside the files, and lists them; the second copy,
in the state directory, stays, so a rollback is still possible.`,
		Args:        cobra.NoArgs,
		Annotations: exits(exitBusy),
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "give up the backups beside the files")
	show := a.read(func(ctx context.Context, w *workflow.Workflow, _ []string) error {
		docs, err := w.History(ctx)
		return a.show(docs, err)
	})
	shorten := a.change(func(ctx context.Context, w *workflow.Workflow, _ []string) error {
		docs, err := w.Prune(ctx)
		return a.show(docs, err)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if prune {
			return shorten(cmd, args)
		}
		return show(cmd, args)
	}
	return cmd
}
