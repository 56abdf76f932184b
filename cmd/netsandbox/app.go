package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/netsandbox/netsandbox/workflow"
)

// streams are the three files of a command.
type streams struct {
	in       *os.File
	out, err io.Writer
}

func standard() streams { return streams{in: os.Stdin, out: os.Stdout, err: os.Stderr} }

// app is what all verbs share: the global flags and what follows from them.
type app struct {
	streams
	out   renderer
	log   zerolog.Logger
	began bool // a verb runs; what failed before was wrong usage
	shown bool // a result was printed
	spin  *spinner

	stateDir  string
	json      bool
	logFormat string
	logLevel  string
	noColor   bool
}

// run is the program: it parses args, runs the verb and returns the exit code.
func run(ctx context.Context, args []string, std streams) int {
	// One place listens for signals. The context ends new work; what undoes work
	// detaches itself from it.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{streams: std}
	root := newRootCmd(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.began {
		// Flags may not have been read yet when a word before them was unknown.
		a.json = a.json || slices.Contains(ours(args), "--json")
		err = usageHint(err, usageOf(cmd))
	}
	return a.report(ctx, err)
}

// ours is what comes before "--", which ends the arguments that are for us.
func ours(args []string) []string {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i]
	}
	return args
}

func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "netsandbox",
		Short: "Rehearse changes of this host, prove them, apply them as trials that undo themselves",
		Long: `netsandbox runs commands in a view: the host's files copy-on-write and a twin of
its network that really reaches the outside. Nothing on the host changes until a
plan is applied, and applying is a trial that another process undoes when the
circuits that must survive do not.

  netsandbox create NAME
  netsandbox exec NAME -- COMMAND
  netsandbox check NAME
  netsandbox plan NAME
  netsandbox apply NAME --yes`,
		Version:           thisVersion().Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.begin() },
	}
	root.SetIn(a.in)
	root.SetOut(a.streams.out)
	root.SetErr(a.streams.err)
	f := root.PersistentFlags()
	f.StringVar(&a.stateDir, "state-dir", "", "`DIR` where everything persistent lives (NETSANDBOX_STATE_DIR; default for root "+rootStateDir+", for others $XDG_STATE_HOME/netsandbox)")
	f.BoolVar(&a.json, "json", false, "print the result, and nothing else, as one JSON document")
	f.StringVar(&a.logFormat, "log-format", "auto", "`FORMAT` of log lines on stderr: auto, json or console (NETSANDBOX_LOG_FORMAT)")
	f.StringVar(&a.logLevel, "log-level", "", "`LEVEL`: trace, debug, info, warn, error or disabled (NETSANDBOX_LOG_LEVEL; default error, with a log format given info)")
	f.BoolVar(&a.noColor, "no-color", false, "no colour on a terminal (NO_COLOR)")
	root.AddGroup(
		&cobra.Group{ID: lifecycle, Title: "Lifecycle:"},
		&cobra.Group{ID: circuits, Title: "Circuits:"},
		&cobra.Group{ID: overview, Title: "Overview:"},
	)
	root.SetHelpTemplate(helpTemplate)
	root.AddCommand(verbs(a)...)
	root.AddCommand(newKeepCmd(a), newDemoPartCmd(a), newManCmd(a))
	a.document(root)
	strictHelp(root)
	return root
}

// The groups of the help text.
const (
	lifecycle = "lifecycle"
	circuits  = "circuits"
	overview  = "overview"
)

// verbs makes every command, in the order of a change's life.
func verbs(a *app) []*cobra.Command {
	var all []*cobra.Command
	for _, g := range []struct {
		id   string
		cmds []*cobra.Command
	}{
		{lifecycle, []*cobra.Command{
			newCreateCmd(a), newStageCmd(a), newExecCmd(a), newEnterCmd(a), newChangesCmd(a), newDiffCmd(a), newResetCmd(a),
			newCheckCmd(a), newWatchCmd(a), newPlanCmd(a), newAuthorizeCmd(a), newRevokeCmd(a), newApplyCmd(a), newConfirmCmd(a),
			newWaitCmd(a), newRollbackCmd(a), newAdvanceCmd(a), newDiscardCmd(a), newRemoveCmd(a), newRecoverCmd(a),
		}},
		{circuits, []*cobra.Command{newCircuitCmd(a), newConnectionsCmd(a)}},
		{overview, []*cobra.Command{
			newListCmd(a), newStatusCmd(a), newInspectCmd(a), newHistoryCmd(a), newEventsCmd(a), newStatesCmd(a), newDoctorCmd(a),
			newDemoCmd(a), newVersionCmd(a),
		}},
	} {
		for _, c := range g.cmds {
			c.GroupID = g.id
		}
		all = append(all, g.cmds...)
	}
	return all
}

// begin settles what the global flags leave to the environment.
func (a *app) begin() error {
	if withCgo {
		a.began = true // no other usage would work either
		return errors.New("this program was built with cgo and cannot confine its own threads; build it with CGO_ENABLED=0")
	}
	dir, err := stateDir(a.stateDir)
	if err != nil {
		return err
	}
	a.stateDir = dir
	a.noColor = a.noColor || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	a.out = a.newRenderer()
	a.log, err = a.newLogger()
	return err
}

// terminal reports whether w is one.
func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// step is the body of a verb that works on the state directory.
type step func(ctx context.Context, w *workflow.Workflow, args []string) error

// change runs a step that changes something: what an earlier process left half
// done is finished or undone first.
func (a *app) change(s step) func(*cobra.Command, []string) error {
	return a.with(workflow.Open, s)
}

// read runs a step that only reports. What killed processes left in the host's
// network is removed all the same: no report is about it but doctor's.
func (a *app) read(s step) func(*cobra.Command, []string) error {
	return a.with(workflow.OpenRead, func(ctx context.Context, w *workflow.Workflow, args []string) error {
		w.Tidy(ctx)
		return s(ctx, w, args)
	})
}

type opener func(context.Context, workflow.Options) (*workflow.Workflow, error)

func (a *app) with(open opener, s step) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		if inside() != "" {
			return a.ask(cmd, args)
		}
		if err := a.ownDir(); err != nil {
			return err
		}
		o, err := a.options()
		if err != nil {
			return err
		}
		stop := a.progress(cmd.Name())
		defer stop()
		w, err := open(cmd.Context(), o)
		if err != nil {
			return err
		}
		defer func() {
			if e := w.Close(); e != nil && err == nil {
				err = fmt.Errorf("close state directory: %w", e)
			}
		}()
		return a.named(s(cmd.Context(), w, args), args)
	}
}
