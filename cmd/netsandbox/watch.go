package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newWatchCmd(a *app) *cobra.Command {
	var interval time.Duration
	var n int
	cmd := &cobra.Command{
		Use:   "watch NAME",
		Short: "Repeat check",
		Long: `Repeat check until interrupted, or --count times: a live table on a terminal, one
result after the other elsewhere. The exit status is that of the last check.`,
		Args:              cobra.ExactArgs(1),
		Annotations:       done("every required circuit was preserved at last", exits(exitBlocked, exitBusy)),
		ValidArgsFunction: a.names,
	}
	cmd.Flags().DurationVar(&interval, "interval", 5*time.Second, "from the end of one check to the next")
	cmd.Flags().IntVar(&n, "count", 0, "stop after so many checks; 0: never")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		if interval <= 0 || n < 0 {
			return usage(fmt.Errorf("--interval %s and --count %d must be positive", interval, n))
		}
		a.stream()
		live := !a.json && terminal(a.streams.out)
		for i := 1; ; i++ {
			doc, err := w.Check(ctx, args[0], workflow.CheckOptions{})
			if err == nil && live {
				fmt.Fprint(a.streams.out, "\x1b[H\x1b[2J") // home, clear
			}
			if err := a.show(doc, err); err != nil {
				return err
			}
			if i == n {
				return verdict(doc)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(interval):
			}
		}
	})
	return cmd
}
