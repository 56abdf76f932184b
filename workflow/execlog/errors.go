package execlog

import "errors"

// Why a command may not run, or a lock not be had.
var (
	ErrTrial = errors.New("environment is in a trial; commands must wait until it is decided")
	ErrGone  = errors.New("environment is gone")
	ErrBusy  = errors.New("environment is in use by another command")
)
