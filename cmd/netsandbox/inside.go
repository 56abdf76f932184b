package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/backends/linuxns/client"
	"github.com/netsandbox/netsandbox/cmd/netsandbox/internal/hot"
	"github.com/netsandbox/netsandbox/workflow"
)

// inside is the environment whose view this program runs in, or "".
func inside() string { return os.Getenv(hot.EnvName) }

// asked are the verbs that work in a view, about its own environment: the state
// directory is covered there, and whoever keeps the view answers them.
var asked = []string{"check", "diff", "changes", "status", "connections"}

// here lets the name be left out in a view.
func here(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return cobra.RangeArgs(1, n)(cmd, withName(args, n))
	}
}

// withName puts the name of the view's environment before args that lack it.
func withName(args []string, n int) []string {
	if name := inside(); name != "" && len(args) < n && !slices.Contains(args, name) {
		return append([]string{name}, args...)
	}
	return args
}

// ask has a verb answered from outside.
func (a *app) ask(cmd *cobra.Command, args []string) error {
	name := inside()
	if !slices.Contains(asked, cmd.Name()) || cmd.Parent() != cmd.Root() {
		return notFrom(cmd, name)
	}
	args = withName(args, 2)
	if args[0] != name || len(args) > 1 && cmd.Name() != "diff" {
		return notFrom(cmd, name)
	}
	q := client.Question{Verb: cmd.Name(), JSON: a.json, Env: os.Environ()}
	if len(args) > 1 {
		q.Path = args[1]
	}
	if f := cmd.Flags().Lookup("timeout"); f != nil && f.Changed {
		q.Timeout = f.Value.String()
	}
	if f := cmd.Flags().Lookup("secrets"); f != nil {
		q.Secrets = f.Value.String() == "true"
	}
	status, err := client.Ask(cmd.Context(), q, a.streams.out, a.err)
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	if status != 0 {
		return &childError{code: status} // it has said why
	}
	return nil
}

// notFrom refuses what cannot be answered in a view.
func notFrom(cmd *cobra.Command, name string) error {
	return &workflow.HintError{
		Err:  fmt.Errorf("%s: not from inside %s", cmd.Name(), name),
		Hint: "leave the view and run: " + useLine(cmd),
	}
}
