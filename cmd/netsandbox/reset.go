package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newResetCmd(a *app) *cobra.Command {
	var o workflow.ResetOptions
	var sure bool
	cmd := &cobra.Command{
		Use:   "reset NAME [PATH...]",
		Short: "Drop experimental changes",
		Long: `Drop experimental changes: those of the PATHs, or everything with --all --yes, or
the network's with --network. Processes that live in the view refuse it, by name,
unless --stop ends them.`,
		Args:              cobra.MinimumNArgs(1),
		Annotations:       exits(exitBlocked, exitBusy),
		ValidArgsFunction: a.names,
	}
	f := cmd.Flags()
	f.BoolVar(&o.All, "all", false, "drop everything; needs --yes")
	f.BoolVar(&sure, "yes", false, "really drop everything")
	f.BoolVar(&o.Network, "network", false, "make the twin anew from the host's present network")
	f.BoolVar(&o.Stop, "stop", false, "end the processes that live in the view")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		o.Paths = args[1:]
		if o.All {
			if len(o.Paths) > 0 {
				return usage(errors.New("--all and a PATH exclude each other"))
			}
			if err := yes(sure, "reset --all drops every change of "+args[0]); err != nil {
				return err
			}
		}
		doc, err := w.Reset(ctx, args[0], o)
		return a.show(doc, err)
	})
	return cmd
}
