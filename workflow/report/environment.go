package report

import (
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
)

// Created is the result of create.
type Created struct {
	Schema   string           `json:"schema"` // netsandbox/v1/created
	Name     string           `json:"name"`
	ID       string           `json:"id"`
	State    states.State     `json:"state"`
	Backend  string           `json:"backend"`
	Mode     string           `json:"mode"`
	Base     string           `json:"base"`
	Mounts   []backends.Mount `json:"mounts"`
	Circuits int              `json:"circuits"` // captured connections
	Covers   []backends.Cover `json:"covers"`   // what the view hides
	Notes    []string         `json:"notes,omitempty"`
	Next     string           `json:"next"` // the command to go on with
}

// Environment is one line of list.
type Environment struct {
	Schema      string       `json:"schema"` // netsandbox/v1/environment
	Name        string       `json:"name"`
	ID          string       `json:"id"`
	State       states.State `json:"state"`
	Cycle       int          `json:"cycle"`
	Owner       uint32       `json:"owner"`
	Backend     string       `json:"backend"`
	Base        string       `json:"base"`
	Description string       `json:"description,omitempty"`
	Created     time.Time    `json:"created"`
}

// Status is the state of one environment and what stands before its next move.
type Status struct {
	Schema string `json:"schema"` // netsandbox/v1/status
	Environment
	View backends.Status `json:"view"`
	// Evidence is the age in seconds of the oldest observation of a required
	// circuit; nil when one was never observed on this layer.
	Evidence *float64  `json:"evidence_age_s"`
	Circuits []Circuit `json:"circuits"`
	Next     *Next     `json:"next,omitempty"`
	// Txn is the transaction that is on the host, or was left incomplete.
	Txn *Transaction `json:"transaction,omitempty"`
	// Notes are lines that somebody should read: twin lost, keeper undid, ….
	Notes []string `json:"notes,omitempty"`
}

// Next is the next move with each of its guards.
type Next struct {
	On     states.Trigger `json:"on"`
	To     states.State   `json:"to"`
	Guards []GuardLine    `json:"guards"`
	// Command does it.
	Command string `json:"command"`
}

// GuardLine is one guard of a move and whether it holds now.
type GuardLine struct {
	Guard   states.Guard    `json:"guard"`
	Holds   bool            `json:"holds"`
	Refusal *guards.Refusal `json:"refusal,omitempty"`
}

// Circuit is one circuit with its latest observation.
type Circuit struct {
	circuit.Definition
	Result   circuit.Result `json:"result"`
	Reason   string         `json:"reason,omitempty"`
	Layer    string         `json:"layer,omitempty"`
	AgeS     *float64       `json:"age_s,omitempty"`
	TookMS   float64        `json:"took_ms,omitempty"`
	Baseline string         `json:"baseline,omitempty"` // what it did on the host before
}

// Circuits is the result of circuit list and connections.
type Circuits struct {
	Schema   string    `json:"schema"` // netsandbox/v1/circuits
	Name     string    `json:"name"`
	Circuits []Circuit `json:"circuits"`
}

// Moved is the result of a verb that only moves an environment.
type Moved struct {
	Schema string         `json:"schema"` // netsandbox/v1/moved
	Name   string         `json:"name"`
	On     states.Trigger `json:"on"`
	From   states.State   `json:"from"`
	To     states.State   `json:"to"`
	Note   string         `json:"note,omitempty"`
}

// Inspect is everything recorded of an environment.
type Inspect struct {
	Schema       string        `json:"schema"` // netsandbox/v1/inspect
	Status       Status        `json:"status"`
	Spec         backends.Spec `json:"spec"`
	Policy       Policy        `json:"policy"`
	Plan         *Plan         `json:"plan,omitempty"`
	Grants       []Grant       `json:"grants"`
	Transactions []Transaction `json:"transactions"`
	Resources    []Resource    `json:"resources"`
	// Covers is what a view that is built now hides; CoverNotes what it cannot.
	Covers     []backends.Cover `json:"covers"`
	CoverNotes []string         `json:"cover_notes,omitempty"`
}

// Resource is one recorded kernel object.
type Resource struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Status string `json:"status"` // intended, made, gone
}

// Policy is what was decided at create.
type Policy struct {
	OnFailure    string `json:"on_failure"`
	AutoRollback bool   `json:"auto_rollback"`
	Authority    string `json:"authority"`
}

// Event is one entry of the journal.
type Event struct {
	Schema string         `json:"schema"` // netsandbox/v1/event
	Seq    int64          `json:"seq"`
	At     time.Time      `json:"at"`
	Event  string         `json:"event"`
	Env    string         `json:"env,omitempty"`
	Txn    string         `json:"txn,omitempty"`
	Data   map[string]any `json:"data,omitempty"`
}

// Doctor is the result of doctor.
type Doctor struct {
	Schema   string             `json:"schema"` // netsandbox/v1/doctor
	Ready    bool               `json:"ready"`
	Findings []backends.Finding `json:"findings"`
}

// States is the machine as data.
type States struct {
	Schema string         `json:"schema"` // netsandbox/v1/states
	States []states.State `json:"states"`
	Edges  []Edge         `json:"edges"`
}

// Edge is one move of the machine.
type Edge struct {
	From   states.State   `json:"from"`
	On     states.Trigger `json:"on"`
	To     states.State   `json:"to"`
	Guards []states.Guard `json:"guards"`
	Else   states.State   `json:"else,omitempty"`
}

// Error is what --json prints on stderr's behalf when a verb fails: one
// document, on stdout, so that a supervising program need not parse text.
type Error struct {
	Schema   string              `json:"schema"` // netsandbox/v1/error
	Error    string              `json:"error"`
	Exit     int                 `json:"exit"`
	Refusals []guards.Refusal    `json:"refusals,omitempty"`
	Hint     string              `json:"hint,omitempty"`
	Txn      string              `json:"txn,omitempty"`
	Left     []backends.Leftover `json:"left,omitempty"`
}
