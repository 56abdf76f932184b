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
		Long: `List all transactions, newest first. --prune deletes the backups of those that
are decided, which can then not be rolled back any more, and lists them.`,
		Args:        cobra.NoArgs,
		Annotations: exits(exitBusy),
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "delete the backups of decided transactions")
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
