package states

import "fmt"

// State is where an environment stands. It is stored by name.
type State string

// Trigger is what may move an environment.
type Trigger string

// The triggers. Reset and lapse are told apart from their siblings so that no
// two edges of one state ever answer to the same trigger.
const (
	Stage       Trigger = "stage"
	Exec        Trigger = "exec"
	Check       Trigger = "check"
	Plan        Trigger = "plan"
	Authorize   Trigger = "authorize"
	Revoke      Trigger = "revoke"
	Expire      Trigger = "expire" // the grant ran out; nobody asked
	Try         Trigger = "trial"
	Commit      Trigger = "commit"
	Rollback    Trigger = "rollback"
	Lapse       Trigger = "lapse"        // the lease ran out, or its holder died
	Reset       Trigger = "reset"        // nothing is left in the layer
	ResetPartly Trigger = "reset-partly" // something is left
)

// Guard names a predicate of package guards. A name here without a predicate
// there is a bug that a test finds.
type Guard string

// The guards, by name.
const (
	ChangesPresent       Guard = "changes-present"
	CircuitsPreserved    Guard = "circuits-preserved"
	LayerUnchanged       Guard = "layer-unchanged"
	CircuitsFresh        Guard = "circuits-fresh"
	CanaryPresent        Guard = "canary-present"
	ChangesRepresentable Guard = "changes-representable"
	OriginsUnchanged     Guard = "origins-unchanged"
	TwinPresent          Guard = "twin-present"
	PlanCurrent          Guard = "plan-current"
	AuthorityHeld        Guard = "authority-held"
	HostLock             Guard = "host-lock"
	LeaseArmed           Guard = "lease-armed"
	TrialPreserved       Guard = "trial-preserved"
	LeaseHeld            Guard = "lease-held"
	Confirmed            Guard = "confirmed"
	UndoVerified         Guard = "undo-verified"
	Reversible           Guard = "reversible"
	ViewIdle             Guard = "view-idle"
)

// Edge is one permitted move.
type Edge struct {
	From   State
	On     Trigger
	To     State
	Guards []Guard
	// Else is where the environment goes when a guard says no. Empty: the
	// trigger is refused and nothing moves. Only evidence that was recorded and
	// found wanting demotes; see check.
	Else State
}

func (e Edge) String() string { return fmt.Sprintf("%s --%s--> %s", e.From, e.On, e.To) }

// All lists the states in the order of the life of a change.
func All() []State {
	return []State{Created, Staged, Exercised, Checked, Planned, Authorized, Trial, Committed, RolledBack}
}

// Parse returns the state stored under a name. An unknown name is an error
// before any machine sees it: the library would answer it with a permitted
// trigger list that means nothing.
func Parse(s string) (State, error) {
	for _, st := range All() {
		if string(st) == s {
			return st, nil
		}
	}
	return "", fmt.Errorf("unknown state %q", s)
}
