package txn

import (
	"errors"
	"fmt"
)

// The errors callers branch on.
var (
	ErrBusy      = errors.New("transaction is in use by another process")
	ErrCorrupt   = errors.New("transaction file is corrupt")
	ErrEmpty     = errors.New("transaction was never begun")
	ErrForeign   = errors.New("not a transaction file")
	ErrNewer     = errors.New("transaction file is of a newer version")
	ErrCommitted = errors.New("transaction is committed")
)

// DecidedError says that the verdict was given before. It stands.
type DecidedError struct{ Verdict Verdict }

func (e *DecidedError) Error() string {
	s := fmt.Sprintf("transaction was decided before: %s by %s", e.Verdict.Decision, e.Verdict.By)
	if e.Verdict.Reason != "" {
		s += " (" + e.Verdict.Reason + ")"
	}
	return s
}

// Is makes a commit that was decided before match [ErrCommitted].
func (e *DecidedError) Is(target error) bool {
	return target == ErrCommitted && e.Verdict.Decision == Commit
}

// orderError is a caller's mistake: a phase that does not follow what is recorded.
func orderError(verb string, s Status) error {
	return fmt.Errorf("bug: %s a transaction that is %s", verb, s)
}
