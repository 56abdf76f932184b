package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/cmd/netsandbox/internal/text"
	"github.com/netsandbox/netsandbox/workflow"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// The exit codes, for every verb but exec and enter.
const (
	exitDone        = 0
	exitFailed      = 1
	exitBlocked     = 2
	exitUndone      = 3
	exitIncomplete  = 4
	exitUsage       = 64 // EX_USAGE of sysexits(3)
	exitBusy        = 75 // EX_TEMPFAIL
	exitInterrupted = 130
)

// exitCode is the one place that turns an error into a code. The order matters:
// what became of the host counts more than how the command ended.
func exitCode(ctx context.Context, err error) int {
	var (
		child      *childError
		incomplete *workflow.IncompleteError
		undone     *workflow.UndoneError
		refused    *workflow.RefusedError
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &child):
		return child.code
	case errors.As(err, &incomplete):
		return exitIncomplete
	case errors.As(err, &undone):
		return exitUndone
	case ctx.Err() != nil || errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &refused), errors.Is(err, errBlocked), errors.Is(err, backends.ErrBusyView):
		return exitBlocked
	case errors.Is(err, workflow.ErrBusy), errors.Is(err, journal.ErrBusy):
		return exitBusy
	case errors.Is(err, workflow.ErrUsage), errors.Is(err, workflow.ErrInvalidName):
		return exitUsage
	default:
		return exitFailed
	}
}

// errBlocked: the answer is no, and the document that was printed says why.
var errBlocked = errors.New("blocked")

// childError carries the status of exec and enter. What was to be said of it has
// been said.
type childError struct{ code int }

func (e *childError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// usageError is a command line that cannot be meant.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Is makes it one of workflow's usage errors.
func (e *usageError) Is(target error) bool { return target == workflow.ErrUsage }

func usage(err error) error { return &usageError{err} }

// report prints an error, once, and returns the exit code.
func (a *app) report(ctx context.Context, err error) int {
	code := exitCode(ctx, err)
	var child *childError
	if err == nil || errors.As(err, &child) {
		return code
	}
	doc := errorDocument(err, code)
	fmt.Fprintf(a.err, "netsandbox: %s\n", oneLine(doc.Error))
	if doc.Hint != "" {
		fmt.Fprintf(a.err, "netsandbox: hint: %s\n", oneLine(doc.Hint))
	}
	// A result that was printed is the one document of this command.
	if a.json && !a.shown {
		if e := (jsonRenderer{w: a.streams.out}).Print(doc); e != nil {
			fmt.Fprintf(a.err, "netsandbox: %s\n", oneLine(e.Error()))
		}
	}
	return code
}

// errorDocument is an error as --json tells it.
func errorDocument(err error, code int) report.Error {
	doc := report.Error{Schema: report.Schema("error"), Error: err.Error(), Exit: code, Hint: hint(err)}
	var refused *workflow.RefusedError
	if errors.As(err, &refused) {
		doc.Refusals = refused.Refusals
	}
	var undone *workflow.UndoneError
	if errors.As(err, &undone) {
		doc.Txn = undone.Txn
	}
	var incomplete *workflow.IncompleteError
	if errors.As(err, &incomplete) {
		doc.Txn, doc.Left = incomplete.Txn, incomplete.Left
	}
	if code == exitInterrupted {
		doc.Error = "interrupted: " + doc.Error
	}
	return doc
}

// hint is the command that gets further, or "".
func hint(err error) string {
	var h *workflow.HintError
	if errors.As(err, &h) {
		return h.Hint
	}
	var refused *workflow.RefusedError
	if errors.As(err, &refused) {
		for _, r := range refused.Refusals {
			if r.Fix != "" {
				return r.Fix
			}
		}
	}
	var incomplete *workflow.IncompleteError
	if errors.As(err, &incomplete) {
		return finish(incomplete)
	}
	return ""
}

// finish says how to end an incomplete undo: what to do by hand, as far as a line
// holds it, and the two ways on from there.
func finish(e *workflow.IncompleteError) string {
	by := "put right what is left"
	if len(e.Left) == 1 && e.Left[0].Fix != "" {
		by = e.Left[0].Fix
	}
	if strings.Contains(by, "netsandbox recover") {
		return by
	}
	return by + ", then: netsandbox recover; or keep it: netsandbox recover --accept " + e.Txn
}

// oneLine keeps a message on its line: joined errors hold line ends, and what
// is quoted in them may hold anything.
func oneLine(s string) string {
	var parts []string
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" {
			parts = append(parts, l)
		}
	}
	return text.Safe(strings.Join(parts, "; "))
}
