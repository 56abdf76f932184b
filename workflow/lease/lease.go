package lease

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/rs/zerolog"
)

// What arming or renewing may answer.
var (
	ErrNotArmed = errors.New("the keeper did not confirm")
	ErrLost     = errors.New("the keeper is gone")
)

// Command is the word by which the program recognises that it is started as a
// keeper: the first argument after its name.
const Command = "__keep"

// Descriptors that a keeper finds open; [Config.Files] follow.
const (
	FD      = 3         // the socket to the applier, for [Keep]
	pidFD   = FD + 1    // the applier's pidfd
	FilesFD = pidFD + 1 // the first of Config.Files
)

// The defaults of a [Config].
const (
	DefaultBound     = 5 * time.Second
	DefaultHardBreak = time.Second
	defaultConfirm   = 10 * time.Second
	defaultGrace     = 500 * time.Millisecond
)

// Config says how a trial is watched.
type Config struct {
	// TxnPath is the transaction file; a keeper that cannot open it does not arm.
	TxnPath string
	// Bound is how long the lease lasts without renewal; Renew how often it is
	// renewed, a quarter of it by default.
	Bound, Renew time.Duration
	// ConfirmBy is the CLOCK_BOOTTIME at which the trial is undone however alive
	// the applier is; zero for none.
	ConfirmBy time.Duration
	// HardBreak is how long the keeper's own probes must fail without a break
	// before the trial counts as having cut the host off.
	HardBreak time.Duration
	// Grace is how long the applier may take to begin undoing after that.
	Grace time.Duration

	// Exe is the program; empty for this one, also when its file was replaced.
	// Args follow [Command].
	Exe  string
	Args []string
	// Env is the keeper's whole environment; nil for a search path alone.
	Env []string
	// Files are inherited, from [FilesFD] on: locks that must outlive the applier.
	Files []*os.File
	// Log receives the keeper's output; nil for nowhere.
	Log *os.File
}

func (c Config) filled() Config {
	fill := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	fill(&c.Bound, DefaultBound)
	fill(&c.Renew, c.Bound/4)
	fill(&c.HardBreak, DefaultHardBreak)
	fill(&c.Grace, defaultGrace)
	if c.Exe == "" {
		c.Exe = "/proc/self/exe"
	}
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	}
	return c
}

// Reason is why a keeper undoes.
type Reason string

// The reasons.
const (
	ApplierDied Reason = "applier-died"
	Lapsed      Reason = "lease-lapsed"
	Overdue     Reason = "not-confirmed"
	Broken      Reason = "hard-break"
	Undecided   Reason = "released-undecided" // the applier let go without a verdict
)

// KeepConfig is what a keeper works with.
type KeepConfig struct {
	// Undo brings the transaction to its end: it takes back what was applied, or
	// finishes what was committed. It is called once, when the applier is dead.
	Undo func(ctx context.Context, reason Reason) error
	// Decided reports whether the transaction file holds a verdict. A keeper that
	// is released without one undoes. Nil: it takes the applier's word.
	Decided func() (bool, error)
	// Probe tries the built-in circuits once; nil when there are none. Only one
	// call is under way at a time.
	Probe func(ctx context.Context) error
	// Settle runs after Undo, for what is not needed for the host to be right:
	// the index in the journal.
	Settle func() error
	Log    zerolog.Logger
}
