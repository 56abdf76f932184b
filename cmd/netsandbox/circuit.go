package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
	"github.com/netsandbox/netsandbox/workflow/report"
)

func newCircuitCmd(a *app) *cobra.Command {
	return group("circuit", "Say what must survive a change",
		newCircuitAddCmd(a),
		newCircuitAddTCPCmd(a),
		newCircuitListCmd(a),
		newCircuitEditCmd(a, "ignore", "Make a circuit non-blocking; plan and grant will say who did it", (*workflow.Workflow).CircuitIgnore),
		newCircuitEditCmd(a, "require", "Make a circuit block again", (*workflow.Workflow).CircuitRequire),
		newCircuitEditCmd(a, "remove", "Forget a circuit", (*workflow.Workflow).CircuitRemove),
	)
}

func newCircuitAddCmd(a *app) *cobra.Command {
	var o workflow.CircuitOptions
	cmd := &cobra.Command{
		Use:   "add NAME LABEL -- COMMAND [ARG...]",
		Short: "Add an application canary: a safe, repeatable command",
		Long: `Add an application canary: a safe, repeatable command that check runs without a
shell in the candidate view, with the caller's rights and a fresh login
environment. --env carries a variable of the caller's to it.`,
		Example: "  netsandbox circuit add edge api -- curl --fail --silent --max-time 5 https://example.invalid/health",
		Args:    cobra.MinimumNArgs(3),
		// The command's own flags are not ours.
		Annotations:       exits(exitBlocked, exitBusy),
		ValidArgsFunction: a.names,
	}
	cmd.Flags().StringArrayVar(&o.Env, "env", nil, "carry `VAR` of this environment; repeatable")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		o.Label, o.Argv = args[1], args[2:]
		doc, err := w.CircuitAdd(ctx, args[0], o)
		return a.show(doc, err)
	})
	return cmd
}

func newCircuitAddTCPCmd(a *app) *cobra.Command {
	var o workflow.CircuitOptions
	cmd := &cobra.Command{
		Use:               "add-tcp NAME LABEL HOST:PORT",
		Short:             "Add direct TCP reachability",
		Args:              cobra.ExactArgs(3),
		Annotations:       exits(exitBlocked, exitBusy),
		ValidArgsFunction: a.names,
	}
	cmd.Flags().StringVar(&o.Interface, "interface", "", "leave by `IF`")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		o.Label, o.Address = args[1], args[2]
		doc, err := w.CircuitAddTCP(ctx, args[0], o)
		return a.show(doc, err)
	})
	return cmd
}

func newCircuitListCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "list NAME",
		Short:             "List the circuits with what was last observed of them",
		Args:              cobra.ExactArgs(1),
		Annotations:       exits(),
		ValidArgsFunction: a.names,
		RunE: a.read(func(ctx context.Context, w *workflow.Workflow, args []string) error {
			doc, err := w.Circuits(ctx, args[0])
			return a.show(doc, err)
		}),
	}
}

type circuitEdit func(w *workflow.Workflow, ctx context.Context, name, id string) (report.Circuits, error)

func newCircuitEditCmd(a *app, verb, short string, edit circuitEdit) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " NAME ID",
		Short:             short,
		Long:              short + ". ID is the circuit's id or its label.",
		Args:              cobra.ExactArgs(2),
		Annotations:       exits(exitBlocked, exitBusy),
		ValidArgsFunction: a.names,
		RunE: a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
			doc, err := edit(w, ctx, args[0], args[1])
			return a.show(doc, err)
		}),
	}
}
