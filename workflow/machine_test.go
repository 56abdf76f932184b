package workflow

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
)

// TestDecideSaysTheWayOut holds the words of a refusal: where the table itself
// says no, the hint is the command that leads there.
func TestDecideSaysTheWayOut(t *testing.T) {
	for _, row := range []struct {
		name   string
		from   states.State
		on     states.Trigger
		reason string
		fix    string
	}{
		{"nothing was changed yet", states.Created, states.Plan, "next is a change", "netsandbox exec web -- COMMAND"},
		{"not checked yet", states.Exercised, states.Plan, "next is check", "netsandbox check web"},
		{"not planned yet", states.Checked, states.Authorize, "next is plan", "netsandbox plan web"},
		{"not authorized yet", states.Planned, states.Try, "next is authorize", "netsandbox authorize web --plan DIGEST"},
		{"authorized already", states.Authorized, states.Authorize, "next is apply", "netsandbox apply web --yes"},
		{"another plan after authority", states.Authorized, states.Plan, "its plan is authorized", "netsandbox revoke web"},
		{"committed already", states.Committed, states.Try, "next is a change", "netsandbox exec web -- COMMAND"},
		{"a check after the commit", states.Committed, states.Check, "next is a change", "netsandbox exec web -- COMMAND"},
		{"nothing to revoke", states.Planned, states.Revoke, "revoke does not lead anywhere from planned", "netsandbox status web"},
		{"exec during a trial", states.Trial, states.Exec, "a trial is on the host", "netsandbox recover"},
		{"reset during a trial", states.Trial, states.Reset, "a trial is on the host", "netsandbox recover"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, _, err := decide(t.Context(), guards.Facts{Env: "web", State: row.from}, row.on)
			want := &RefusedError{
				Env: "web", From: row.from, On: row.on,
				Refusals: []guards.Refusal{{Guard: "table", Reason: row.reason, Fix: row.fix}},
			}
			var got *RefusedError
			if !errors.As(err, &got) {
				t.Fatalf("decide: %v, want a refusal", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideNamesAStateItDoesNotKnow(t *testing.T) {
	_, _, err := decide(t.Context(), guards.Facts{Env: "web", State: "expired"}, states.Check)
	if err == nil || err.Error() != `environment web: unknown state "expired"` {
		t.Errorf("decide: %v", err)
	}
}

// TestDecideDemotesWithItsReasons: a check that fails moves, and says why.
func TestDecideDemotesWithItsReasons(t *testing.T) {
	f := guards.Facts{Env: "web", State: states.Checked, Layer: guards.Layer{Known: true, Changes: 1}}
	f.Plan = &guards.Plan{Digest: "a", Now: "b"}
	to, refusals, err := decide(t.Context(), f, states.Check)
	if err != nil || to != states.Exercised {
		t.Fatalf("decide = %s, %v; want %s", to, err, states.Exercised)
	}
	if len(refusals) != 1 || refusals[0].Guard != states.LayerUnchanged {
		t.Errorf("reasons are %v, want that of %s", refusals, states.LayerUnchanged)
	}
}

// TestDecideAsksEveryGuardOfItsEdge: one refusal does not hide the next.
func TestDecideAsksEveryGuardOfItsEdge(t *testing.T) {
	f := guards.Facts{Env: "web", State: states.Authorized}
	_, _, err := decide(t.Context(), f, states.Try)
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("decide: %v, want a refusal", err)
	}
	var got []states.Guard
	for _, r := range refused.Refusals {
		got = append(got, r.Guard)
	}
	want := []states.Guard{states.PlanCurrent, states.AuthorityHeld, states.HostLock, states.LeaseArmed}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("guards that refused (-want +got):\n%s", diff)
	}
}
