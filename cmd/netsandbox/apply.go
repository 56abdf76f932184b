package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
	"github.com/netsandbox/netsandbox/workflow/report"
)

func newApplyCmd(a *app) *cobra.Command {
	var o workflow.ApplyOptions
	var dry bool
	cmd := &cobra.Command{
		Use:   "apply NAME (--yes | --plan DIGEST | --dry-run)",
		Short: "Apply the plan as a trial that undoes itself unless every circuit is preserved",
		Long: `Do whatever steps are missing from the present state, then try the plan on the
host: another process, armed before the first change, undoes it when a required
circuit is not preserved, when this command dies, or when the machine reboots.

It needs a grant: --yes gives one for the last recorded plan; without --yes, --plan
names the plan for which authorize recorded one.

--dry-run shows what would happen and what is in the way. It changes nothing and
refreshes nothing.`,
		Args:              cobra.ExactArgs(1),
		Annotations:       done("committed; for --dry-run: it would apply", exits(exitBlocked, exitUndone, exitIncomplete, exitBusy)),
		ValidArgsFunction: a.names,
	}
	f := cmd.Flags()
	f.BoolVar(&o.Yes, "yes", false, "grant the digest of the last recorded plan, and no other")
	f.BoolVar(&dry, "dry-run", false, "only show what would happen")
	f.StringVar(&o.Plan, "plan", "", "refuse any plan but that of `DIGEST`")
	f.BoolVar(&o.Trial, "trial", false, "refuse anything but typed network changes")
	f.DurationVar(&o.ConfirmWithin, "confirm-within", 0, "undo it unless a human confirms in time, over another connection")
	f.BoolVar(&o.NoBootRecovery, "no-boot-recovery", false, "accept that nothing undoes the trial after a reboot")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	try := a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		o.Progress = a.progressLine
		doc, err := w.Apply(ctx, args[0], o)
		return a.applied(doc, err)
	})
	preview := a.read(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		doc, err := w.DryRun(ctx, args[0], o)
		if err := a.show(doc, err); err != nil {
			return err
		}
		if !doc.Would {
			return fmt.Errorf("%s: would not apply: %w", doc.Name, errBlocked)
		}
		return nil
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case dry:
			return preview(cmd, args)
		case o.ConfirmWithin < 0 || o.ConfirmWithin > 0 && o.ConfirmWithin < time.Second:
			return usage(fmt.Errorf("--confirm-within %s is too short", o.ConfirmWithin))
		case !o.Yes && o.Plan == "":
			return usageHint(errors.New("apply changes this host; it needs --yes, or --plan DIGEST of an authorized plan"),
				"netsandbox apply "+args[0]+" --dry-run")
		}
		return try(cmd, args)
	}
	return cmd
}

// progressLine prints a line of an apply as it happens: among them are the
// transaction and the nonce, which somebody needs before the end. With --json
// the result is the only thing on stdout.
func (a *app) progressLine(line string) {
	w := a.streams.out
	if a.json {
		w = a.err
	}
	a.spin.clear()
	fmt.Fprintln(w, oneLine(line))
}

// applied prints how a trial ended. A step that returns an error may still have
// a result: what was undone, and what is left.
func (a *app) applied(doc report.Applied, err error) error {
	if doc.Txn != "" && doc.Outcome != "" {
		if e := a.print(doc); e != nil {
			return errors.Join(err, e)
		}
	}
	if err != nil {
		return err
	}
	return outcome(doc)
}

// outcome turns the end of a trial into the error that stands for it.
func outcome(doc report.Applied) error {
	switch doc.Outcome {
	case "rolled_back", "already_rolled_back":
		e := &workflow.UndoneError{Txn: doc.Txn, Reason: doc.Reason}
		if doc.OutageMS > 0 {
			e.Outage = time.Duration(doc.OutageMS * float64(time.Millisecond)).Round(time.Millisecond).String()
		}
		return e
	case "incomplete":
		return &workflow.IncompleteError{Txn: doc.Txn, Left: doc.Left}
	}
	return nil
}
