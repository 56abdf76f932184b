package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/cmd/netsandbox/internal/hot"
)

// exec and enter run before any of this initialises, in package hot. What comes
// here is help, completion and wrong usage.

func newExecCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec NAME [--detach] -- COMMAND [ARG...]",
		Short: "Run a command in the environment",
		Long: `Run a command in the environment, without a shell in between. User, directory and
variables follow the caller; standard streams, signals, the window's size and the
exit status pass through. Nothing on the host changes.`,
		Annotations:        map[string]string{annotChild: "yes"},
		DisableFlagParsing: true,
		ValidArgsFunction:  a.names,
		RunE:               a.late,
	}
	cmd.Flags().Bool("detach", false, "leave it running in the view and return at once")
	return cmd
}

func newEnterCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enter NAME [--shell PATH]",
		Short: "Start an interactive shell in the environment",
		Long: `Start an interactive shell in the environment; leave it with exit or Ctrl-D.
NETSANDBOX_ENV holds the name of the environment there, NETSANDBOX_CANDIDATE_ROOT
where its candidates are found.`,
		Annotations:        map[string]string{annotChild: "yes"},
		DisableFlagParsing: true,
		ValidArgsFunction:  a.names,
		RunE:               a.late,
	}
	cmd.Flags().String("shell", "", "`PATH` of the shell; default: the user's own")
	return cmd
}

// late answers what package hot left over. Its codes are those of exec.
func (a *app) late(cmd *cobra.Command, _ []string) error {
	r, _, err := hot.Parse(os.Args[1:])
	switch {
	case errors.Is(err, hot.ErrHelp):
		return cmd.Help()
	case err != nil:
		fmt.Fprintf(a.err, "netsandbox: %s\n", oneLine(err.Error()))
		return &childError{code: hot.Failed}
	}
	return &childError{code: hot.Run(r)}
}
