package guards

import (
	"time"

	"github.com/netsandbox/netsandbox/guards/authority"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
)

// Facts is everything a guard may know. The zero value of a part means that
// nothing is known of it, and a guard that needs it refuses.
type Facts struct {
	Env   string // name, for the commands in refusals
	State states.State
	Cycle int

	// BootID and Now are the instant of the move: CLOCK_BOOTTIME of this boot.
	BootID string
	Now    time.Duration

	Layer        Layer
	Circuits     []circuit.Definition
	Observations map[string]circuit.Observation // latest, by circuit id
	// Warn is the policy --on-failure warn: a Lost circuit is recorded in plan
	// and grant instead of blocking.
	Warn bool
	// ConfirmWithin: a human will confirm over another connection, so a required
	// inbound circuit need not be verifiable beforehand.
	ConfirmWithin bool

	Plan     *Plan
	Grant    *authority.Grant
	HostLock Lock
	Lease    Lease
	Trial    Trial
	Undo     Undo
	Reverse  Reverse
	// Processes lives in the view, "pid 12 sleep".
	Processes []string
	// Drop is what a reset is asked to drop, as its arguments: "--network".
	Drop []string
}

// Layer is what the view has that the host has not.
type Layer struct {
	Known   bool   // the layer was read for this move
	Digest  string // of what can be planned, and of the twin
	Changes int    // how many changes can be planned
	// FilesOnly: nothing but files differs.
	FilesOnly bool
	// BelowRoot: the base is not "/".
	BelowRoot bool
	TwinLost  bool
	// Untyped are differences no plan can express; Moved are paths whose host
	// side changed, or may have changed, since the change was derived from it.
	Untyped []Obstacle
	Moved   []Obstacle
}

// Obstacle is one thing in the way, with the command that removes it.
type Obstacle struct {
	Subject string
	Reason  string
	Fix     string
}

// Plan is the recorded plan beside what planning again would give now.
type Plan struct {
	Digest string // as recorded
	Now    string // as the layer, the circuits and the policy stand now
	Cycle  int
}

// Lock is the host-wide trial lock.
type Lock struct {
	Held bool
	By   string // who has it instead
}

// Lease is what undoes a trial.
type Lease struct {
	Armed bool // the keeper confirmed that it watches
	Held  bool // and has not lapsed
	// BootRequired: the base is "/", so a reboot must find somebody to undo.
	// BootPresent: a unit will. BootWaived: --no-boot-recovery was given.
	BootRequired, BootPresent, BootWaived bool
}

// Trial is what was found on the host after the plan was applied.
type Trial struct {
	Verified bool       // the host equals the plan
	Differs  []Obstacle // where it does not
	// Results holds every required circuit's answer from the host.
	Results map[string]circuit.Observation
	// Keep: --auto-rollback=false, so a failed circuit keeps the change.
	Keep bool
	// ConfirmRequired and Confirmed: --confirm-within.
	ConfirmRequired, Confirmed bool
}

// Undo is how taking a transaction back ended.
type Undo struct {
	Verified bool
	Left     []Obstacle
}

// Reverse is whether a committed transaction can still be taken back.
type Reverse struct {
	Known   bool
	Newer   []string   // later transactions over the same paths, newest first
	Drifted []Obstacle // the host is not as committed
}
