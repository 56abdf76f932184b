package wire

import (
	"errors"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// The operations of the workflow on a holder.
const (
	OpBuild  = "build"  // build the view if there is none
	OpStatus = "status" // say what is alive
	OpStop   = "stop"   // end the view, keep the namespaces
	OpQuit   = "quit"   // end view and holder
	OpStage  = "stage"  // put a candidate through the merged mount
	OpReset  = "reset"  // drop differential content
	OpFreeze = "freeze" // stop the processes until the connection ends
	OpTwin   = "twin"   // what the inside changed of the twin
	OpRelay  = "relay"  // add loopback ports
	OpCanary = "canary" // run a probe in a throw-away view
)

// Op is one operation, with descriptors as its kind needs them.
type Op struct {
	Name   string          `json:"name"`
	Path   change.Path     `json:"path,omitempty"`
	Delete bool            `json:"delete,omitempty"`
	Like   *change.Entry   `json:"like,omitempty"`
	Reset  backends.Reset  `json:"reset,omitzero"`
	Ports  []uint16        `json:"ports,omitempty"`
	Where  backends.Where  `json:"where,omitempty"`
	Probe  *backends.Probe `json:"probe,omitempty"`
}

// Reply answers an [Op].
type Reply struct {
	Error   string            `json:"error,omitempty"`
	Code    string            `json:"code,omitempty"` // which sentinel the error is
	Status  *backends.Status  `json:"status,omitempty"`
	Mounts  []backends.Mount  `json:"mounts,omitempty"`
	Notes   []string          `json:"notes,omitempty"`
	Lines   []string          `json:"lines,omitempty"`
	Blocked []change.Blocker  `json:"blocked,omitempty"`
	Outcome *backends.Outcome `json:"outcome,omitempty"`
}

// codes keeps what callers branch on across the socket.
var codes = map[string]error{
	"unavailable": backends.ErrUnavailable,
	"twin-lost":   backends.ErrTwinLost,
	"busy-view":   backends.ErrBusyView,
	"outside":     backends.ErrOutsideBase,
	"unsupported": errors.ErrUnsupported,
}

// SetError puts an error into the reply.
func (r *Reply) SetError(err error) {
	if err == nil {
		return
	}
	r.Error = err.Error()
	for code, is := range codes {
		if errors.Is(err, is) {
			r.Code = code
		}
	}
}

// Err takes it out again.
func (r *Reply) Err() error {
	if r.Error == "" {
		return nil
	}
	return &remoteError{r.Error, codes[r.Code]}
}

// remoteError has the text of an error of another process and is the sentinel
// that it was there.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error { return e.is }
