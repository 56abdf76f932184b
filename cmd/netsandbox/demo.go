package main

import (
	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/cmd/netsandbox/internal/demo"
)

func newDemoCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Tell the whole story in a throw-away network",
		Long: `Tell the whole story, with the real verbs, in a throw-away network with a gateway,
an API server and a proxy: a change that breaks the way out is found and refused,
the repaired one is applied, and one that works only where it was rehearsed undoes
itself. Nothing on this host is touched, and at the end that is verified.`,
		Args:        cobra.NoArgs,
		Annotations: exits(),
		RunE: func(*cobra.Command, []string) error {
			return demo.Run(a.streams.out, a.err)
		},
	}
}

// newDemoPartCmd plays a part of the demo.
func newDemoPartCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         demo.Command + " PART [ARG...]",
		Short:       "Play a part of the demo",
		Hidden:      true,
		Args:        cobra.MinimumNArgs(1),
		Annotations: exits(),
		RunE: func(cmd *cobra.Command, args []string) error {
			status, err := demo.Play(cmd.Context(), args, a.streams.out)
			if err == nil && status != 0 {
				return &childError{code: status}
			}
			return err
		},
	}
}
