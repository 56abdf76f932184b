package guards

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/guards/authority"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
)

const (
	boot   = "b1a2c3d4-0000-4000-8000-000000000001"
	reboot = "b1a2c3d4-0000-4000-8000-000000000002"
	layer  = "sha256:layer"
	digest = "sha256:plan"
	now    = time.Hour
)

// api and lan are the circuits of [good].
var (
	api = circuit.Definition{ID: "c1", Label: "api", Kind: circuit.Canary, Required: true}
	lan = circuit.Definition{ID: "c2", Label: "lan", Kind: circuit.TCP, Required: true}
	ssh = circuit.Definition{ID: "c3", Label: "ssh", Kind: circuit.Inbound, Required: true}
)

func seen(d circuit.Definition, r circuit.Result, reason string) circuit.Observation {
	return circuit.Observation{
		Circuit: d.ID, Result: r, Reason: reason, Layer: layer,
		BootID: boot, Boottime: now - 3*time.Second, Sensitive: true,
	}
}

// good is facts that no guard objects to.
func good() Facts {
	obs := map[string]circuit.Observation{
		api.ID: seen(api, circuit.Preserved, ""),
		lan.ID: seen(lan, circuit.Preserved, ""),
	}
	return Facts{
		Env: "web", State: states.Authorized, Cycle: 2, BootID: boot, Now: now,
		Layer:        Layer{Known: true, Digest: layer, Changes: 1, FilesOnly: true},
		Circuits:     []circuit.Definition{api, lan},
		Observations: obs,
		Plan:         &Plan{Digest: digest, Now: digest, Cycle: 2},
		Grant:        &authority.Grant{Plan: digest, Cycle: 2, BootID: boot, Expires: now + time.Minute},
		HostLock:     Lock{Held: true},
		Lease:        Lease{Armed: true, Held: true, BootRequired: true, BootPresent: true},
		Trial:        Trial{Verified: true, Results: map[string]circuit.Observation{api.ID: obs[api.ID], lan.ID: obs[lan.ID]}},
		Undo:         Undo{Verified: true},
		Reverse:      Reverse{Known: true},
	}
}

// row is one sentence about a guard: with this made so, it holds or refuses.
type row struct {
	name string
	make func(*Facts)
	want *Refusal // nil: it holds
}

// rows are the tests of each guard, in files beside this one.
var rows = map[states.Guard][]row{
	states.ChangesPresent:       changesPresentRows,
	states.ChangesRepresentable: changesRepresentableRows,
	states.OriginsUnchanged:     originsUnchangedRows,
	states.LayerUnchanged:       layerUnchangedRows,
	states.ViewIdle:             viewIdleRows,
	states.TwinPresent:          twinPresentRows,
	states.CircuitsPreserved:    circuitsPreservedRows,
	states.CircuitsFresh:        circuitsFreshRows,
	states.CanaryPresent:        canaryPresentRows,
	states.PlanCurrent:          planCurrentRows,
	states.AuthorityHeld:        authorityHeldRows,
	states.HostLock:             hostLockRows,
	states.LeaseArmed:           leaseArmedRows,
	states.LeaseHeld:            leaseHeldRows,
	states.TrialPreserved:       trialPreservedRows,
	states.Confirmed:            confirmedRows,
	states.UndoVerified:         undoVerifiedRows,
	states.Reversible:           reversibleRows,
}

func TestGuards(t *testing.T) {
	for guard, rows := range rows {
		for _, r := range rows {
			t.Run(fmt.Sprintf("%s/%s", guard, r.name), func(t *testing.T) {
				f := good()
				if r.make != nil {
					r.make(&f)
				}
				var want []Refusal
				if r.want != nil {
					w := *r.want
					w.Guard = guard
					want = []Refusal{w}
				}
				if diff := cmp.Diff(want, Check([]states.Guard{guard}, f)); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestEveryGuardIsTestedBothWays keeps a new guard from coming without rows.
func TestEveryGuardIsTestedBothWays(t *testing.T) {
	for guard := range All() {
		holds := slices.ContainsFunc(rows[guard], func(r row) bool { return r.want == nil })
		refuses := slices.ContainsFunc(rows[guard], func(r row) bool { return r.want != nil })
		if !holds || !refuses {
			t.Errorf("%s: a row in which it holds: %v, in which it refuses: %v", guard, holds, refuses)
		}
		for _, r := range rows[guard] {
			if r.want != nil && r.want.Reason == "" {
				t.Errorf("%s: %s: a refusal without a reason", guard, r.name)
			}
		}
	}
}

func TestEveryGuardOfTheTableIsDecidedHere(t *testing.T) {
	named := map[states.Guard]bool{}
	for _, e := range states.Table() {
		for _, g := range e.Guards {
			named[g] = true
			if All()[g] == nil {
				t.Errorf("%s asks %s, which has no predicate", e, g)
			}
		}
	}
	for g := range All() {
		if !named[g] {
			t.Errorf("no edge asks %s", g)
		}
	}
}

// TestKnowingNothingPermitsNothing: the zero facts get past no guarded edge that
// leads to the host.
func TestKnowingNothingPermitsNothing(t *testing.T) {
	for _, e := range states.Table() {
		switch e.On {
		case states.Plan, states.Authorize, states.Try, states.Commit, states.Rollback, states.Lapse:
			if len(Check(e.Guards, Facts{Env: "web"})) == 0 {
				t.Errorf("%s is permitted by facts that say nothing", e)
			}
		}
	}
}

func TestCheckSaysAllThatIsInTheWay(t *testing.T) {
	f := good()
	f.Plan, f.HostLock = nil, Lock{By: "apply-1"}
	got := Check([]states.Guard{states.PlanCurrent, states.LeaseArmed, states.HostLock, "no-such"}, f)
	want := []Refusal{
		{Guard: states.PlanCurrent, Reason: "there is no plan of this cycle", Fix: "netsandbox plan web"},
		{Guard: states.HostLock, Reason: "another trial has the host", Subjects: []string{"apply-1"}, Fix: "netsandbox history"},
		{Guard: "no-such", Reason: "no such guard in this build"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}

func TestRefusalReadsAsOneLine(t *testing.T) {
	r := Refusal{Guard: states.ViewIdle, Reason: "processes are alive in the view"}
	if got, want := r.String(), "view-idle: processes are alive in the view"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	r.Subjects = []string{"pid 12 sleep", "pid 13 nginx"}
	if got, want := r.String(), "view-idle: processes are alive in the view: pid 12 sleep; pid 13 nginx"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}
