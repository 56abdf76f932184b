package report

import (
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
)

// Staged is the result of stage.
type Staged struct {
	Schema    string       `json:"schema"` // netsandbox/v1/staged
	Name      string       `json:"name"`
	Path      change.Path  `json:"path"`
	Candidate change.Path  `json:"candidate"` // where it is found in the view
	Deleted   bool         `json:"deleted"`
	State     states.State `json:"state"`
}

// Changes is what differs, files and network alike.
type Changes struct {
	Schema    string           `json:"schema"` // netsandbox/v1/changes
	Name      string           `json:"name"`
	Layer     string           `json:"layer"` // digest
	Changes   []change.Change  `json:"changes"`
	Blockers  []change.Blocker `json:"blockers"`
	Ephemeral []change.Change  `json:"ephemeral"`
	Network   []string         `json:"network"`
}

// Diff is the same as text.
type Diff struct {
	Schema string     `json:"schema"` // netsandbox/v1/diff
	Name   string     `json:"name"`
	Files  []FileDiff `json:"files"`
	// Network is the difference of the network in words, unless one path was asked for.
	Network []string `json:"network"`
}

// FileDiff is one path's difference.
type FileDiff struct {
	Path change.Path `json:"path"`
	Op   change.Op   `json:"op"`
	Text string      `json:"text"` // unified diff, or words
}

// Check is the result of check.
type Check struct {
	Schema   string       `json:"schema"` // netsandbox/v1/check
	Name     string       `json:"name"`
	Layer    string       `json:"layer"`
	From     states.State `json:"from"`
	To       states.State `json:"to"`
	Circuits []Circuit    `json:"circuits"`
	OK       bool         `json:"ok"` // every required circuit holds
	// Note says why the environment stayed although they hold.
	Note     string           `json:"note,omitempty"`
	Refusals []guards.Refusal `json:"refusals,omitempty"`
	// Notes are lines that somebody should read: stale view, ….
	Notes []string `json:"notes,omitempty"`
}

// Plan is a recorded plan as shown.
type Plan struct {
	Schema       string          `json:"schema"` // netsandbox/v1/plan
	Name         string          `json:"name"`
	Digest       string          `json:"digest"`
	Layer        string          `json:"layer"`
	Cycle        int             `json:"cycle"`
	Base         string          `json:"base"`
	Changes      []change.Change `json:"changes"`
	Commands     []string        `json:"commands"` // as an administrator would type them
	Circuits     []Circuit       `json:"circuits"`
	Policy       Policy          `json:"policy"`
	Weakened     []string        `json:"weakened,omitempty"`
	Processes    []string        `json:"processes,omitempty"` // that will end
	Irreversible []string        `json:"irreversible,omitempty"`
	Notes        []string        `json:"notes,omitempty"`
	State        states.State    `json:"state"`
}

// DryRun is the result of apply --dry-run.
type DryRun struct {
	Schema   string           `json:"schema"` // netsandbox/v1/dry-run
	Name     string           `json:"name"`
	Would    bool             `json:"would_apply"`
	Steps    []states.Trigger `json:"steps"`
	Changes  []change.Change  `json:"changes"`
	Refusals []guards.Refusal `json:"refusals"`
	Blockers []change.Blocker `json:"blockers"`
}
