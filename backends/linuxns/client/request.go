package client

import "github.com/netsandbox/netsandbox/backends"

// Request is one command. Files among its streams are handed into the view as
// they are; any other reader or writer is served through a pipe, and a nil one
// is the null device. Detach returns as soon as the command runs, with all three
// on the null device.
type Request = backends.ExecRequest

// The statuses of a command that was not run, as a shell gives them.
const (
	StatusFailed        = 125 // netsandbox could not, or refused
	StatusNotExecutable = 126
	StatusNotFound      = 127
)
