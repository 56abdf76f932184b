package txn

import (
	"time"

	"github.com/netsandbox/netsandbox/backends"
)

// format is the version of the file. A reader refuses a later one.
const format = 1

// kind names a record.
type kind string

const (
	recHeader   kind = "header"
	recPrepare  kind = "prepare"
	recArmed    kind = "armed"
	recStaged   kind = "staged"
	recSwap     kind = "swap"
	recSwapped  kind = "swapped"
	recVerdict  kind = "verdict"
	recRevert   kind = "revert"
	recRestored kind = "restored"
	recUndone   kind = "undone"
	recAccepted kind = "accepted"
	recClean    kind = "clean"
	recPruned   kind = "pruned"
)

// record is one line of the truth. It is stored as JSON, so that a person with
// nothing but strings(1) can read what was to be done.
type record struct {
	Kind   kind            `json:"kind"`
	At     time.Time       `json:"at"`
	Header *Header         `json:"header,omitempty"`
	Steps  []backends.Step `json:"steps,omitempty"`
	// Places replaces the bookkeeping of the prepared steps, in their order.
	Places    []backends.Place    `json:"places,omitempty"`
	Keeper    *Keeper             `json:"keeper,omitempty"`
	Verdict   *Verdict            `json:"verdict,omitempty"`
	Leftovers []backends.Leftover `json:"leftovers,omitempty"`
	Unlisted  int                 `json:"unlisted,omitempty"` // leftovers that the record had no room for
}

// Header says what a transaction is for. It is written once, at Create.
type Header struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"` // NewID, unless the caller has one
	Env     string    `json:"env"`
	EnvID   string    `json:"env_id"`
	Cycle   int64     `json:"cycle"`
	Plan    string    `json:"plan"` // digest
	HostID  string    `json:"host_id"`
	BootID  string    `json:"boot_id"` // of the boot it was begun on
	UID     uint32    `json:"uid"`
	Created time.Time `json:"created"`
}

// Keeper is the process that watches the trial.
type Keeper struct {
	PID int `json:"pid"`
	// Start tells the process from a later one of the same number, in clock ticks
	// since boot as /proc/PID/stat has it.
	Start uint64 `json:"start"`
}

// Decision is what a verdict says.
type Decision string

// The decisions.
const (
	Commit Decision = "commit"
	Undo   Decision = "undo"
)

// Party is who decided.
type Party string

// The parties.
const (
	Applier   Party = "applier"
	Watcher   Party = "keeper"
	Recoverer Party = "recover"
	Operator  Party = "operator" // a person's rollback
)

// Verdict decides a transaction. The first one written stands.
type Verdict struct {
	Decision Decision  `json:"decision"`
	By       Party     `json:"by"`
	Reason   string    `json:"reason,omitempty"`
	At       time.Time `json:"at"`
	// InDoubt marks an undo that is written over a commit which may or may not
	// have reached the disk.
	InDoubt bool `json:"in_doubt,omitempty"`
}
