package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newHistoryCmd(a *app) *cobra.Command {
	var prune bool
	var o workflow.PruneOptions
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List all transactions, newest first",
		Long: `List all transactions, newest first. --prune gives up what the decided ones keep:
the originals hidden beside the files, their second copies in the state directory,
and plans that nothing needs. What was pruned cannot be rolled back and stays in the
list. With --keep-copies the second copies stay, and a rollback with them. Nothing of
an undecided or incomplete transaction goes.`,
		Args:        cobra.NoArgs,
		Annotations: exits(exitBusy),
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "give up the backups of decided transactions; they cannot be rolled back then")
	cmd.Flags().DurationVar(&o.OlderThan, "older-than", 0, "with --prune, keep what was decided less than `AGE` ago, like 720h")
	cmd.Flags().BoolVar(&o.KeepCopies, "keep-copies", false, "with --prune, give up only what is hidden beside the files")
	show := a.read(func(ctx context.Context, w *workflow.Workflow, _ []string) error {
		docs, err := w.History(ctx)
		return a.show(docs, err)
	})
	shorten := a.change(func(ctx context.Context, w *workflow.Workflow, _ []string) error {
		doc, err := w.Prune(ctx, o)
		return a.show(doc, err)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.OlderThan < 0:
			return usage(fmt.Errorf("--older-than %s is negative", o.OlderThan))
		case prune:
			return shorten(cmd, args)
		case cmd.Flags().Changed("older-than"), o.KeepCopies:
			return usage(errors.New("--older-than and --keep-copies are for --prune"))
		}
		return show(cmd, args)
	}
	return cmd
}
