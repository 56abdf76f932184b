package plan

import (
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards/circuit"
)

// Schema names the document's form. Fields are only ever added.
const Schema = "netsandbox/v1/plan"

// Plan is what a trial would do, and on what conditions.
type Plan struct {
	Schema  string      `json:"schema"`
	Env     string      `json:"env"`
	EnvID   string      `json:"env_id"`
	Cycle   int         `json:"cycle"`
	Backend string      `json:"backend"`
	Base    change.Path `json:"base"`
	HostID  string      `json:"host_id"` // of [HostID]
	Layer   string      `json:"layer"`   // digest of the layer it was made from

	Changes  []change.Change      `json:"changes"`
	Circuits []circuit.Definition `json:"circuits"`
	Policy   Policy               `json:"policy"`
	// Weakened says what was made less strict than the default, and by whom; it is
	// part of what authority is given for.
	Weakened []string `json:"weakened,omitempty"`

	// What follows is for readers: it depends on the moment and is in no digest.

	// Processes live in the view and end when the plan is committed.
	Processes []string `json:"processes,omitempty"`
	// Irreversible names what no undo brings back.
	Irreversible []string `json:"irreversible,omitempty"`
	// Notes are consequences worth reading, of [Notes] and others.
	Notes []string `json:"notes,omitempty"`
}

// Policy is how the trial decides.
type Policy struct {
	OnFailure    string `json:"on_failure"` // block-apply, warn, stop
	AutoRollback bool   `json:"auto_rollback"`
	Authority    string `json:"authority,omitempty"` // root, terminal, signed
	// BootRecovery says who undoes the trial after a reboot: "unit", "none", or
	// empty where the base does not ask for it.
	BootRecovery string `json:"boot_recovery,omitempty"`
}
