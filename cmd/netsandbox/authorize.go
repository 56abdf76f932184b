package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/guards/authority"
	"github.com/netsandbox/netsandbox/workflow"
)

func newAuthorizeCmd(a *app) *cobra.Command {
	o := workflow.AuthorizeOptions{For: authority.Default}
	cmd := &cobra.Command{
		Use:   "authorize NAME --plan DIGEST",
		Short: "Record authority for exactly one plan and one trial",
		Long: `Record authority for exactly the plan of that digest. It lasts for one trial and
--for at most. An environment made with --authority terminal asks on the
controlling terminal.`,
		Args:              cobra.ExactArgs(1),
		Annotations:       exits(exitBlocked, exitBusy),
		ValidArgsFunction: a.names,
	}
	cmd.Flags().StringVar(&o.Plan, "plan", "", "`DIGEST` that plan printed")
	cmd.Flags().DurationVar(&o.For, "for", o.For, "how long it lasts")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) (err error) {
		if o.How, err = a.askTerminal(ctx, w, args[0], o.Plan); err != nil {
			return err
		}
		doc, err := w.Authorize(ctx, args[0], o)
		return a.show(doc, err)
	})
	return cmd
}
