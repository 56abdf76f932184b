// Package backends is the contract between the workflow and everything that
// touches an operating system.
//
// A [Backend] makes environments of one kind; a [View] is one of them: a layer
// of differential files, a runner for commands, and canaries run in throw-away
// copies of it. A [Host] (host.go) is a typed adapter to the real machine; only
// the transaction and the keeper ever hold one, and a view cannot be turned
// into one, so a backend cannot reach the host by construction.
//
// The package is a leaf: it imports the vocabulary in backends/change and
// nothing else of ours. Implementations live below it and import it; only cmd
// names them.
package backends

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/netsandbox/netsandbox/backends/change"
)

// The errors callers branch on. Implementations wrap them.
var (
	// ErrUnavailable: this machine cannot run the backend; the text says why and
	// which doctor line tells more.
	ErrUnavailable = errors.New("backend unavailable on this machine")
	// ErrTwinLost: the process that held the twin is gone, and un-planned
	// network changes with it. [Layer.Reset] with Network gets past it.
	ErrTwinLost = errors.New("network twin lost")
	// ErrBusyView: processes live in the view and the operation would end them.
	ErrBusyView = errors.New("processes are alive in the view")
	// ErrOutsideBase: the path is not below the environment's base.
	ErrOutsideBase = errors.New("path is outside the base")
)

// Spec is everything a backend needs to know of one environment. It is written
// once, at create, and is the same in every later process.
type Spec struct {
	Name string `json:"name"`
	ID   string `json:"id"` // 26 characters, ULID
	// Dir is the environment's own directory, mode 0700, below StateRoot.
	Dir string `json:"dir"`
	// StateRoot is covered inside the view: it holds layers, journals, backups.
	StateRoot string `json:"state_root"`
	// Base: only paths at or below it can become changes. "/" by default.
	Base string `json:"base"`
	UID  uint32 `json:"uid"` // owner; nobody else may enter
	GID  uint32 `json:"gid"`
	// Relay lists host loopback TCP ports that are reachable from the view
	// besides resolver stubs.
	Relay []uint16 `json:"relay,omitempty"`
	// Hide lists paths covered by an empty mount inside the view.
	Hide []string `json:"hide,omitempty"`
	// Secrets, when not nil, hides those of others besides.
	Secrets *Secrets `json:"secrets,omitempty"`
	// Mode forces an isolation mode: "shifted", "caps", or for tests of the
	// escape probes "unhardened". Empty: the best this machine can do.
	Mode string `json:"mode,omitempty"`
}

// Backend makes environments of one kind.
type Backend interface {
	// Name is the word for --backend.
	Name() string
	// Create builds the view of a new environment and starts what keeps it. On
	// error nothing of it is left.
	Create(ctx context.Context, spec Spec) (Created, error)
	// Open returns the view of an existing environment. It does no I/O.
	Open(spec Spec) View
	// Sweep removes kernel objects and processes that a crashed environment left
	// on the host. It is idempotent; removing what is gone is no error.
	Sweep(ctx context.Context, r Resource) error
}

// Created is what a backend reports about a new environment.
type Created struct {
	Mode      string     `json:"mode"`   // "shifted" or "caps"
	Mounts    []Mount    `json:"mounts"` // how each host mount appears inside
	Resources []Resource `json:"resources,omitempty"`
	Notes     []string   `json:"notes,omitempty"` // limits worth a line at create
}

// Mount says how one mount of the host appears in the view.
type Mount struct {
	Point     string `json:"point"`
	FS        string `json:"fs"`
	Treatment string `json:"treatment"` // "layer", "alias", "copy", "read-only", "excluded"
	Reason    string `json:"reason,omitempty"`
}

// Resource is a kernel object or process on the host that must be swept when
// its environment is gone. It is recorded before it is made.
type Resource struct {
	Kind string `json:"kind"` // "process", "cgroup", "rule", "table", …
	Name string `json:"name"`
	Data string `json:"data,omitempty"`
}

// View is one environment's experimental world. Its parts are separate so that
// callers ask for what they use.
type View interface {
	Layer
	Runner
	Inhabited
}

// Layer is the differential content of a view.
type Layer interface {
	// Stage puts a candidate for one absolute path into the layer, through the
	// merged mount: in the view it is found under the same path.
	Stage(ctx context.Context, path change.Path, c Candidate) error
	// Changes returns everything that differs from the host. It reads, it does
	// not stop processes; see [Inhabited.Freeze] for a stable answer.
	Changes(ctx context.Context) (Difference, error)
	// Open opens the wanted content of a regular file in the layer for reading.
	Content(ctx context.Context, path change.Path) (*os.File, error)
	// Reset drops differential content. With Settled, the paths were applied to
	// the host and leave the layer because the host now has them. It refuses
	// with [ErrBusyView] unless r.Stop. An empty one drops nothing: it ends a view
	// that nothing uses, so that the next is built from what the host has then.
	Reset(ctx context.Context, r Reset) error
	// Discard ends the environment and deletes everything it has on disk. The
	// caller renamed Dir to a tombstone before.
	Discard(ctx context.Context) error
}

// Candidate is the wanted state of one staged path.
type Candidate struct {
	// From is the content; nil with Delete false stages a copy of the host's file.
	From *os.File
	// Delete stages the path's removal.
	Delete bool
	// Like is all that the path is to be: its type, owner, mode, attributes, times,
	// and which file it is another name of. Nil: it keeps what it has.
	Like *change.Entry
}

// Reset says what to drop.
type Reset struct {
	Paths   []change.Path
	All     bool
	Network bool // rebuild the twin from the host's present network
	Settled bool // Paths were committed to the host
	Stop    bool // end processes that live in the view
}

// Difference is what a view has that the host has not.
type Difference struct {
	Changes   []change.Change  // plannable, sorted
	Ephemeral []change.Change  // logs, caches, locks, new sockets: shown apart, not planned
	Blockers  []change.Blocker // has no type, or an uncertain origin
	// Outdated lists copies in the layer that change nothing, of what the host has
	// changed since: the view shows what no longer is there. [Layer.Reset] of the
	// paths lets it show the host's again.
	Outdated []change.Path
	// Network is the part of Blockers-to-be that belongs to the twin, normalised,
	// one line each, sorted; it is part of the layer digest.
	Network []string
}

// Runner runs canaries in throw-away views.
type Runner interface {
	// Canary runs one probe and waits for it. The context bounds it; a canary is
	// killed as a tree. An error means that the probe could not be run, not that
	// it failed.
	Canary(ctx context.Context, where Where, p Probe) (Outcome, error)
}

// Where names the world a canary runs in.
type Where string

// The shapes of a canary view; see design of candidate, control and jail.
const (
	InCandidate Where = "candidate" // the view's files and the view's network
	InControl   Where = "control"   // the host's files and a pristine twin
	InCut       Where = "cut"       // control, with the way out cut
	InJail      Where = "jail"      // the host's files and the host's network, no power over either
)

// Probe is what to run: a command, or a built-in dial when Argv is empty.
type Probe struct {
	Argv []string
	// Env is the complete environment; with Login it is added to a fresh login
	// environment made from the world's own passwd and /etc/environment, because
	// a proxy variable set there is noticed by nobody's current shell.
	Env    []string
	Login  bool
	Cwd    string // falls back to the home directory, then "/", with Login
	UID    uint32
	GID    uint32
	Groups []uint32
	// Dial is "host:port" for the built-in TCP probe; Interface binds it.
	Dial      string
	Interface string
	Timeout   time.Duration
}

// Outcome is how a canary ended.
type Outcome struct {
	Exit     int    // exit status; -1 when it did not exit by itself
	Signal   int    // signal that ended it, or 0
	TimedOut bool   // killed because its time was up
	Output   string // first 4 KiB of stdout and stderr together, escaped
	Err      string // why it could not start or dial: "connection refused", …
	Took     time.Duration
	// Unproven says what the world could not do as the host would while the probe
	// ran. A failure then proves nothing; a success is one all the same.
	Unproven []string
}

// OK reports whether the probe succeeded.
func (o Outcome) OK() bool { return o.Exit == 0 && o.Signal == 0 && !o.TimedOut && o.Err == "" }

// Inhabited is what lives in a view.
type Inhabited interface {
	// Status says what is alive. It starts nothing.
	Status(ctx context.Context) (Status, error)
	// Stop ends every process of the view and unmounts it; user and network
	// namespace stay.
	Stop(ctx context.Context) error
	// Freeze stops the view's processes from running until thaw is called. Where
	// the machine has no freezer it returns an error wrapping
	// [errors.ErrUnsupported].
	Freeze(ctx context.Context) (thaw func() error, err error)
	// Relay adds host loopback ports to the allow-list of the twin.
	Relay(ctx context.Context, ports ...uint16) error
}

// Status is the liveness of a view.
type Status struct {
	Holder    int       `json:"holder"` // pid, 0 when gone
	Init      int       `json:"init"`   // pid of the view's PID 1, 0 when no view is built
	TwinLost  bool      `json:"twin_lost"`
	Mode      string    `json:"mode"`
	Processes []Process `json:"processes"`
	// Since is when the view was built, in nanoseconds since 1970 on the clock that
	// dates files; 0 when none is, 1 when that clock was set back.
	Since int64 `json:"since,omitempty"`
	// Notes say what of the host's network the twin could not be given.
	Notes []string `json:"notes,omitempty"`
}

// Dated is a [View] that knows what the host has changed since it was built. An
// overlay goes on showing what it has looked up.
type Dated interface {
	// Outdated returns those of the host's paths that the view, as it stands, may
	// show as they were before.
	Outdated(ctx context.Context, paths []change.Path) ([]change.Path, error)
}

// Process is one process that lives in the view, as the host sees it.
type Process struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
}

// Executor runs commands in a view for a caller. It is apart from [View]
// because its hot path opens no journal.
type Executor interface {
	// Exec runs one command and returns its status as a shell would: the exit
	// code, or 128 plus the signal.
	Exec(ctx context.Context, spec Spec, r ExecRequest) (int, error)
}

// ExecRequest is one command with the caller's surroundings.
type ExecRequest struct {
	Argv   []string
	Env    []string
	Cwd    string
	Detach bool
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Prober answers what this machine can do, for doctor.
type Prober interface {
	Probe(ctx context.Context, stateRoot string) []Finding
}

// Finding is one line of doctor.
type Finding struct {
	Name   string `json:"name"`
	Status string `json:"status"` // "ok", "degraded", "missing", "leftover"
	Detail string `json:"detail,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

// Connector lists the host's established connections, for circuits found by
// themselves.
type Connector interface {
	Connections(ctx context.Context) ([]Connection, error)
}

// Connection is one established TCP connection of the host.
type Connection struct {
	Local     string `json:"local"`     // "addr:port"
	Remote    string `json:"remote"`    // "addr:port"
	Direction string `json:"direction"` // "outbound", or "inbound" when a local listener owns the port
	PID       int    `json:"pid,omitempty"`
	Comm      string `json:"comm,omitempty"`
	UID       uint32 `json:"uid"`
	Interface string `json:"interface,omitempty"` // when the socket is bound to one
}
