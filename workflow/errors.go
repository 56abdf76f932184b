package workflow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
)

// The errors that callers branch on. The exit code of each is decided in cmd.
var (
	ErrInvalidName = errors.New("invalid environment name")
	ErrExists      = errors.New("environment exists already")
	ErrNotFound    = errors.New("environment not found")
	ErrNotOwner    = errors.New("environment belongs to another user")
	ErrBusy        = errors.New("in use by another command")
	ErrUsage       = errors.New("usage")
	ErrNoCircuit   = errors.New("circuit not found")
	ErrNoTxn       = errors.New("transaction not found")
)

// HintError is an error with the command that gets further.
type HintError struct {
	Err  error
	Hint string
}

func (e *HintError) Error() string { return e.Err.Error() }
func (e *HintError) Unwrap() error { return e.Err }

func hint(err error, format string, args ...any) error {
	return &HintError{Err: err, Hint: fmt.Sprintf(format, args...)}
}

// RefusedError is the answer no: a guard, or the table itself, does not permit
// the move. Nothing was changed.
type RefusedError struct {
	Env      string
	From     states.State
	On       states.Trigger
	Refusals []guards.Refusal
}

func (e *RefusedError) Error() string {
	reasons := make([]string, len(e.Refusals))
	for i, r := range e.Refusals {
		reasons[i] = r.String()
		if r.Guard == tableGuard {
			reasons[i] = r.Reason
		}
	}
	return fmt.Sprintf("%s: cannot %s from %s: %s", e.Env, e.On, e.From, strings.Join(reasons, "; "))
}

// UndoneError says that the plan was on the host and is not any more.
type UndoneError struct {
	Txn    string
	Reason string
	Outage string // measured, or empty
}

func (e *UndoneError) Error() string {
	s := fmt.Sprintf("%s was rolled back: %s", e.Txn, e.Reason)
	if e.Outage != "" {
		s += " (outage " + e.Outage + ")"
	}
	return s
}

// IncompleteError says that an undo left something behind.
type IncompleteError struct {
	Txn  string
	Left []backends.Leftover
}

func (e *IncompleteError) Error() string {
	parts := make([]string, len(e.Left))
	for i, l := range e.Left {
		parts[i] = fmt.Sprintf("%s: found %s, wanted %s", l.Subject, l.Found, l.Wanted)
	}
	return fmt.Sprintf("%s is rolled back incompletely: %s", e.Txn, strings.Join(parts, "; "))
}
