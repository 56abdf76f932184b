// Package circuit says what a circuit is: a capability of the host that must
// survive a change, and what was observed of it.
//
// It is a leaf of pure data and pure judgement: it probes nothing. The workflow
// runs probes in the candidate view, the control view, the cut view and the
// jail, and [Judge] turns their four answers into one result word.
package circuit

import "time"

// Kind is how a circuit is exercised.
type Kind string

// The kinds of circuits.
const (
	// Canary is a command of the user's, run without a shell: the only proof of
	// an application's own settings, credentials and routes.
	Canary Kind = "canary"
	// TCP is a direct connection to host:port; transport reachability, not more.
	TCP Kind = "tcp"
	// Outbound is an established connection found at create, repeated as TCP.
	Outbound Kind = "outbound"
	// Inbound is an established connection whose client is elsewhere; nothing on
	// this machine can repeat it truthfully.
	Inbound Kind = "inbound"
)

// Definition is a circuit without any observation. It is part of a plan's
// digest, so it holds no times and nothing that was measured.
type Definition struct {
	ID       string `json:"id"`
	Label    string `json:"label"`
	Kind     Kind   `json:"kind"`
	Required bool   `json:"required"`
	// Argv is a canary's argument vector; Env names and values it wants besides
	// a fresh login environment; Cwd where it runs.
	Argv []string `json:"argv,omitempty"`
	Env  []string `json:"env,omitempty"`
	Cwd  string   `json:"cwd,omitempty"`
	// UID, GID and Groups are whose circuit it is.
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
	// Address is "host:port", Interface an optional device to leave by.
	Address   string `json:"address,omitempty"`
	Interface string `json:"interface,omitempty"`
}

// Endpoint returns what at most one probe at a time may touch: the address, or
// the whole canary.
func (d Definition) Endpoint() string {
	if d.Address != "" {
		return d.Address
	}
	return d.ID
}

// Result is the word for one observation, spelled as in every output.
type Result string

// The result words.
const (
	Preserved    Result = "Preserved"    // worked before, works in the candidate view
	Lost         Result = "Lost"         // worked before, fails in the candidate view
	Degraded     Result = "Degraded"     // works, much slower than before
	New          Result = "New"          // failed before, works now: a repair
	Unverifiable Result = "Unverifiable" // no safe way to tell
	Insensitive  Result = "Insensitive"  // passes even with the way out cut: proves nothing
	Ignored      Result = "Ignored"      // not required, by somebody's decision
	Pending      Result = "Pending"      // never observed on this layer
)

// Holds reports whether a required circuit with this result may pass a guard.
func (r Result) Holds() bool {
	return r == Preserved || r == New || r == Degraded || r == Insensitive
}

// Observation is one result of one circuit, bound to the layer it was made on.
type Observation struct {
	Circuit string `json:"circuit"`
	Result  Result `json:"result"`
	// Reason says why in one clause: "connect: connection refused".
	Reason string `json:"reason,omitempty"`
	// Layer is the digest of the layer that was exercised.
	Layer string `json:"layer"`
	// BootID and Boottime date it: another boot is stale, whatever the clock says.
	BootID   string        `json:"boot_id"`
	Boottime time.Duration `json:"boottime_ns"`
	// At is wall-clock UTC, for people only.
	At time.Time `json:"at"`
	// Took is how long the candidate probe lasted.
	Took time.Duration `json:"took_ns"`
	// Sensitive: the canary fails when the way out is cut, so it proves something.
	Sensitive bool `json:"sensitive"`
}

// Window is how long an observation counts.
const Window = 60 * time.Second

// Fresh reports whether o may still be relied on at the given instant of this
// boot. A boottime before the observation's own is another timeline: stale.
func (o Observation) Fresh(bootID string, now time.Duration) bool {
	age := now - o.Boottime
	return o.BootID == bootID && age >= 0 && age <= Window
}
