package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
	"github.com/netsandbox/netsandbox/workflow/report"
)

func newRollbackCmd(a *app) *cobra.Command {
	var sure bool
	cmd := &cobra.Command{
		Use:   "rollback TRANSACTION... --yes",
		Short: "Restore the host from a transaction",
		Long: `Restore the host as it was before the transactions, in the order given. It works
after the environment is gone; the environment's own layer stays as it is. A newer
transaction over the same things is named and has to go first.`,
		Args:        cobra.MinimumNArgs(1),
		Annotations: exits(exitBlocked, exitIncomplete, exitBusy),
	}
	cmd.Flags().BoolVar(&sure, "yes", false, "really change the host back")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		if err := yes(sure, "rollback changes this host: "+strings.Join(args, " ")); err != nil {
			return err
		}
		docs, err := w.Rollback(ctx, args)
		docs = slices.DeleteFunc(docs, func(d report.Applied) bool { return d.Outcome == "" }) // refused
		if len(docs) > 0 {
			if e := a.print(docs); e != nil {
				return errors.Join(err, e)
			}
		}
		if err != nil {
			return err
		}
		for _, d := range docs {
			if d.Outcome == "incomplete" {
				return outcome(d)
			}
		}
		return nil
	})
	return cmd
}
