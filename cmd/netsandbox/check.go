package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
	"github.com/netsandbox/netsandbox/workflow/report"
)

func newCheckCmd(a *app) *cobra.Command {
	var o workflow.CheckOptions
	cmd := &cobra.Command{
		Use:               "check NAME",
		Short:             "Run every circuit in the candidate view",
		Args:              here(1),
		Annotations:       done("every required circuit is preserved", exits(exitBlocked, exitBusy)),
		ValidArgsFunction: a.names,
	}
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 3*time.Second, "how long one probe may take")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		if o.Timeout <= 0 {
			return usage(fmt.Errorf("--timeout %s is not positive", o.Timeout))
		}
		doc, err := w.Check(ctx, args[0], o)
		if err := a.show(doc, err); err != nil {
			return err
		}
		return verdict(doc)
	})
	return cmd
}

// verdict is the error of a check whose answer is no. The document has said why
// at length; a reason that is long is not said here again.
func verdict(doc report.Check) error {
	if doc.OK {
		return nil
	}
	err := &workflow.HintError{Err: fmt.Errorf("%s: not every required circuit holds: %w", doc.Name, errBlocked)}
	for _, r := range doc.Refusals {
		r.Subjects = slices.Clone(r.Subjects)
		for i, s := range r.Subjects {
			if name, _, ok := strings.Cut(s, " ("); ok && utf8.RuneCountInString(s) > 80 {
				r.Subjects[i] = name
			}
		}
		err.Err = fmt.Errorf("%s: %w: %s", doc.Name, errBlocked, r)
		if err.Hint = r.Fix; err.Hint != "" {
			break
		}
	}
	return err
}
