package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newStageCmd(a *app) *cobra.Command {
	var o workflow.StageOptions
	var from string
	cmd := &cobra.Command{
		Use:   "stage NAME PATH",
		Short: "Put a candidate for one path into the environment",
		Long: `Put a candidate for one path into the differential layer: the content of --from,
the path's absence with --delete, or else a copy of the host's file to edit.
PATH is absolute, or relative to the base of the environment.`,
		Example: `  netsandbox stage edge /etc/proxy/config --from ./config
  netsandbox stage edge /etc/proxy/old.conf --delete
  netsandbox stage edge --from-transaction apply-20260301-123000-ab12`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.FromTransaction != "" {
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		Annotations:       exits(exitBlocked, exitBusy),
		ValidArgsFunction: a.names,
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "take the content of `FILE`, a regular file")
	f.BoolVar(&o.Delete, "delete", false, "stage the removal of PATH")
	f.StringVar(&o.FromTransaction, "from-transaction", "", "stage everything as the transaction `ID` wanted it")
	cmd.MarkFlagsMutuallyExclusive("from", "delete", "from-transaction")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		if len(args) > 1 {
			o.Path = args[1]
		}
		if from != "" {
			f, err := openRegular(from)
			if err != nil {
				return err
			}
			defer f.Close()
			o.From = f
		}
		doc, err := w.Stage(ctx, args[0], o)
		return a.show(doc, err)
	})
	return cmd
}

// openRegular opens a regular file with the caller's rights. Anything else could
// block, or change while it is read.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open candidate: %w", err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("candidate %s is not a regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
