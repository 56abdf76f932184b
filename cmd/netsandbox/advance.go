package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow"
)

func newAdvanceCmd(a *app) *cobra.Command {
	var o workflow.AdvanceOptions
	var to string
	cmd := &cobra.Command{
		Use:   "advance NAME",
		Short: "Do the next step, or all up to a state",
		Long: `Do the one next step, or all up to --to, stopping at the first guard that refuses.
Nothing reaches the host without --yes.`,
		Args:              cobra.ExactArgs(1),
		Annotations:       exits(exitBlocked, exitUndone, exitIncomplete, exitBusy),
		ValidArgsFunction: a.names,
	}
	cmd.Flags().StringVar(&to, "to", "", "go on until this `STATE`")
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "grant the digest of the last recorded plan where a step needs it")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		o.To = states.State(to)
		o.Progress = a.progressLine
		docs, err := w.Advance(ctx, args[0], o)
		if len(docs) > 0 || err == nil {
			if e := a.print(docs); e != nil {
				return errors.Join(err, e)
			}
		}
		return err
	})
	return cmd
}
