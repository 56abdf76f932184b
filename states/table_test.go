package states_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/netsandbox/netsandbox/states"
)

// permitted is the table written a second time, by hand, as the sentences that
// it must say: "from --on--> to [guards] else".
const permitted = `
created --stage--> staged
created --exec--> exercised
created --reset--> created [view-idle]
created --reset-partly--> staged [view-idle]
created --check--> created
staged --stage--> staged
staged --exec--> exercised
staged --reset--> created [view-idle]
staged --reset-partly--> staged [view-idle]
staged --check--> checked [changes-present circuits-preserved] else staged
exercised --stage--> staged
exercised --exec--> exercised
exercised --reset--> created [view-idle]
exercised --reset-partly--> staged [view-idle]
exercised --check--> checked [changes-present circuits-preserved] else exercised
checked --stage--> staged
checked --exec--> exercised
checked --reset--> created [view-idle]
checked --reset-partly--> staged [view-idle]
checked --check--> checked [layer-unchanged circuits-preserved] else exercised
checked --plan--> planned [changes-present circuits-fresh canary-present changes-representable origins-unchanged twin-present]
planned --stage--> staged
planned --exec--> exercised
planned --reset--> created [view-idle]
planned --reset-partly--> staged [view-idle]
planned --check--> planned [layer-unchanged circuits-preserved] else exercised
planned --plan--> planned [changes-present circuits-fresh canary-present changes-representable origins-unchanged twin-present]
planned --authorize--> authorized [plan-current authority-held]
authorized --stage--> staged
authorized --exec--> exercised
authorized --reset--> created [view-idle]
authorized --reset-partly--> staged [view-idle]
authorized --check--> authorized [layer-unchanged circuits-preserved] else exercised
authorized --revoke--> planned
authorized --expire--> planned
authorized --trial--> trial [plan-current authority-held circuits-fresh origins-unchanged host-lock lease-armed]
trial --commit--> committed [trial-preserved lease-held confirmed]
trial --rollback--> rolledback [undo-verified]
trial --lapse--> rolledback [undo-verified]
committed --stage--> staged
committed --exec--> exercised
committed --reset--> created [view-idle]
committed --reset-partly--> staged [view-idle]
committed --rollback--> rolledback [reversible undo-verified]
rolledback --stage--> staged
rolledback --exec--> exercised
rolledback --reset--> created [view-idle]
rolledback --reset-partly--> staged [view-idle]
rolledback --check--> checked [changes-present circuits-preserved] else rolledback
`

// sentence says an edge as permitted does.
func sentence(e Edge) string {
	s := e.String()
	if len(e.Guards) > 0 {
		s += fmt.Sprint(" ", e.Guards)
	}
	if e.Else != "" {
		s += " else " + string(e.Else)
	}
	return s
}

// sentences are the lines of permitted by what comes before the arrow's head.
func sentences() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(permitted)) {
		line = strings.TrimSpace(line)
		key, _, _ := strings.Cut(line, "-->")
		out[key] = line
	}
	return out
}

func key(from State, on Trigger) string { return fmt.Sprintf("%s --%s", from, on) }

var triggers = []Trigger{
	Stage, Exec, Check, Plan, Authorize, Revoke, Expire, Try, Commit, Rollback, Lapse, Reset, ResetPartly,
}

// TestEdges holds every pair of state and trigger against the hand-written
// table: what is there must be exactly so, and what is not must be refused.
func TestEdges(t *testing.T) {
	want := sentences()
	for _, from := range All() {
		for _, on := range triggers {
			edge, found := Find(from, on)
			line, ok := want[key(from, on)]
			name := fmt.Sprintf("%s cannot %s", from, on)
			if ok {
				name = fmt.Sprintf("%s can %s", from, on)
			}
			t.Run(name, func(t *testing.T) {
				got := ""
				if found {
					got = sentence(edge)
				}
				if diff := cmp.Diff(line, got); diff != "" {
					t.Errorf("the move (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestTableHasNothingElse(t *testing.T) {
	if got, want := len(Table()), len(sentences()); got != want {
		t.Errorf("the table has %d moves, want %d", got, want)
	}
	seen := map[string]bool{}
	for _, e := range Table() {
		if k := key(e.From, e.On); seen[k] {
			// Two edges that can both be true make the library panic.
			t.Errorf("%s answers twice to %s", e.From, e.On)
		} else {
			seen[k] = true
		}
		if !slices.Contains(triggers, e.On) {
			t.Errorf("trigger %q is not tested", e.On)
		}
	}
}

func TestTrialIsLeftOnlyByItsVerdict(t *testing.T) {
	if diff := cmp.Diff([]Trigger{Commit, Rollback, Lapse}, Triggers(Trial)); diff != "" {
		t.Errorf("ways out of trial (-want +got):\n%s", diff)
	}
	for _, e := range Table() {
		if e.To == Trial && (e.From != Authorized || e.On != Try) {
			t.Errorf("%s leads into a trial", e)
		}
		if e.To == Committed && e.From != Trial {
			t.Errorf("%s commits without a trial", e)
		}
	}
}

func TestOnlyACheckDemotes(t *testing.T) {
	for _, e := range Table() {
		if e.Else != "" && e.On != Check {
			t.Errorf("%s moves to %s when refused; only evidence may", e, e.Else)
		}
		if e.Else != "" && len(e.Guards) == 0 {
			t.Errorf("%s has an else and no guard", e)
		}
	}
}

func TestEveryStateIsReached(t *testing.T) {
	reached := map[State]bool{Created: true}
	for range All() {
		for _, e := range Table() {
			if reached[e.From] {
				reached[e.To] = true
			}
		}
	}
	for _, s := range All() {
		if !reached[s] {
			t.Errorf("nothing leads from %s to %s", Created, s)
		}
	}
}

// TestNextLeadsToCommitted follows Next as `advance` does.
func TestNextLeadsToCommitted(t *testing.T) {
	for _, s := range All() {
		on, ok := Next(s)
		if stuck := s == Created || s == Committed; ok == stuck {
			t.Errorf("Next(%s) = %q, %v", s, on, ok)
		}
	}
	if on, ok := Next("unknown"); ok {
		t.Errorf("Next of an unknown state is %s", on)
	}
	var path []State
	for s := Staged; len(path) < len(All()); {
		path = append(path, s)
		on, ok := Next(s)
		if !ok {
			break
		}
		e, found := Find(s, on)
		if !found {
			t.Fatalf("Next(%s) is %s, which the table refuses", s, on)
		}
		s = e.To
	}
	if diff := cmp.Diff([]State{Staged, Checked, Planned, Authorized, Trial, Committed}, path); diff != "" {
		t.Errorf("the way (-want +got):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	for _, s := range All() {
		if got, err := Parse(string(s)); err != nil || got != s {
			t.Errorf("Parse(%q) = %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "Created", "rolled-back", "expired", "any but trial"} {
		if got, err := Parse(s); err == nil {
			t.Errorf("Parse(%q) = %q, want an error", s, got)
		}
	}
}
