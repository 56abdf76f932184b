package guards

import (
	"strings"

	"github.com/netsandbox/netsandbox/states"
)

// Refusal is a guard's negative answer. It is an answer, not an accident.
type Refusal struct {
	Guard states.Guard `json:"guard"`
	// Reason is one clause, lower case, no period.
	Reason string `json:"reason"`
	// Subjects are what it is about: circuits, paths, processes.
	Subjects []string `json:"subjects,omitempty"`
	// Fix is the command that would get past it.
	Fix string `json:"fix,omitempty"`
}

func (r Refusal) String() string {
	if len(r.Subjects) == 0 {
		return string(r.Guard) + ": " + r.Reason
	}
	return string(r.Guard) + ": " + r.Reason + ": " + strings.Join(r.Subjects, "; ")
}

// Func decides one predicate. Nil means that it holds.
type Func func(Facts) *Refusal

// All maps every guard that the table names to its predicate.
func All() map[states.Guard]Func {
	return map[states.Guard]Func{
		states.ChangesPresent:       changesPresent,
		states.CircuitsPreserved:    circuitsPreserved,
		states.LayerUnchanged:       layerUnchanged,
		states.CircuitsFresh:        circuitsFresh,
		states.CanaryPresent:        canaryPresent,
		states.ChangesRepresentable: changesRepresentable,
		states.OriginsUnchanged:     originsUnchanged,
		states.TwinPresent:          twinPresent,
		states.PlanCurrent:          planCurrent,
		states.AuthorityHeld:        authorityHeld,
		states.HostLock:             hostLock,
		states.LeaseArmed:           leaseArmed,
		states.TrialPreserved:       trialPreserved,
		states.LeaseHeld:            leaseHeld,
		states.Confirmed:            confirmed,
		states.UndoVerified:         undoVerified,
		states.Reversible:           reversible,
		states.ViewIdle:             viewIdle,
	}
}

// Check asks the named guards in order and returns every refusal, so that a
// reader sees all that is in the way at once. An unknown name refuses.
func Check(names []states.Guard, f Facts) []Refusal {
	all := All()
	var out []Refusal
	for _, n := range names {
		g, ok := all[n]
		if !ok {
			out = append(out, Refusal{Guard: n, Reason: "no such guard in this build"})
			continue
		}
		if r := g(f); r != nil {
			r.Guard = n
			out = append(out, *r)
		}
	}
	return out
}

// command renders a netsandbox command line about the environment.
func (f Facts) command(verb string, args ...string) string {
	return strings.Join(append([]string{"netsandbox", verb, f.Env}, args...), " ")
}

// list renders obstacles as "subject (reason)" and takes the first fix.
func list(os []Obstacle) (subjects []string, fix string) {
	for _, o := range os {
		s := o.Subject
		if o.Reason != "" {
			s += " (" + o.Reason + ")"
		}
		subjects = append(subjects, s)
		if fix == "" {
			fix = o.Fix
		}
	}
	return subjects, fix
}
