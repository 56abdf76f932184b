package execlog

import "errors"

// Why a command may not run, or a lock not be had.
var (
	ErrTrial = errors.New("environment is in a trial; commands must wait until it is decided")
	ErrGone  = errors.New("environment is gone")
	ErrBusy  = errors.New("environment is in use by another command")
)

// BusyError is [ErrBusy] with who has the lock, as far as that can be told.
type BusyError struct{ Who string }

func (e *BusyError) Error() string { return ErrBusy.Error() + e.By() }

// By is what to put behind a sentence of one's own: ": pid 12 (netsandbox exec)".
func (e *BusyError) By() string {
	if e.Who == "" {
		return ""
	}
	return ": " + e.Who
}

func (e *BusyError) Unwrap() error { return ErrBusy }
