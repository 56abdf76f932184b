package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newDoctorCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can and cannot do, why, and how to get it",
		Long: `Say what this machine can and cannot do, why, and how to get it, by doing each
thing in a scratch place; and name what an earlier run left behind. It changes
nothing.`,
		Args:        cobra.NoArgs,
		Annotations: done("this machine can run netsandbox", exits()),
		RunE: a.with(workflow.OpenRead, func(ctx context.Context, w *workflow.Workflow, _ []string) error {
			doc, err := w.Doctor(ctx)
			if err := a.show(doc, err); err != nil {
				return err
			}
			if !doc.Ready {
				return errors.New("this machine cannot run netsandbox as it is")
			}
			return nil
		}),
	}
}
