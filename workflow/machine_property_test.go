package workflow

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/guards/authority"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
)

// world is everything that a move may depend on, in numbers small enough to be
// judged twice: once through facts and guards, once by the model below.
type world struct {
	state       states.State
	cycle, boot int
	now         time.Duration

	layer, changes               int // version of the layer, and how much differs
	moved, untyped, lost, busy   bool
	api, lan                     sight // a canary and a TCP circuit, both required
	plan                         struct{ layer, cycle int }
	grant                        struct{ plan, cycle, boot int }
	until                        time.Duration
	used                         bool
	locked, armed, held          bool
	verified, answers, confirmed bool
	undone, newer                bool
}

// sight is the latest observation of a circuit.
type sight struct {
	result      circuit.Result
	layer, boot int
	at          time.Duration
}

func (s sight) good(w *world) bool {
	return s.layer == w.layer && (s.result == circuit.Preserved || s.result == circuit.Insensitive)
}

func (s sight) recent(w *world) bool {
	return s.boot == w.boot && s.at <= w.now && w.now <= s.at+time.Minute
}

// model is the machine in one page: where a trigger leads, and whether it may.
func (w *world) model(on states.Trigger) (to states.State, ok bool) {
	s, differs := w.state, w.changes > 0 || w.moved || w.untyped
	preserved := w.api.good(w) && w.lan.good(w)
	fresh := preserved && w.api.recent(w) && w.lan.recent(w)
	current := w.plan.cycle == w.cycle && w.plan.layer == w.layer
	granted := w.grant.plan == w.plan.layer && w.grant.cycle == w.cycle && w.grant.boot == w.boot && w.now <= w.until && !w.used
	sameLayer := w.api.layer == w.layer && w.lan.layer == w.layer && (w.plan.cycle != w.cycle || current)
	switch {
	case on == states.Stage && s != states.Trial:
		return states.Staged, true
	case on == states.Exec && s != states.Trial:
		return states.Exercised, true
	case on == states.Reset && s != states.Trial:
		return states.Created, !w.busy
	case on == states.ResetPartly && s != states.Trial:
		return states.Staged, !w.busy
	case on == states.Check && s == states.Created:
		return s, true
	case on == states.Check && (s == states.Staged || s == states.Exercised || s == states.RolledBack):
		if differs && preserved {
			return states.Checked, true
		}
		return s, true
	case on == states.Check && (s == states.Checked || s == states.Planned || s == states.Authorized):
		if sameLayer && preserved {
			return s, true
		}
		return states.Exercised, true
	case on == states.Plan && (s == states.Checked || s == states.Planned):
		return states.Planned, differs && fresh && w.api.result == circuit.Preserved && !w.moved && !w.untyped && !w.lost
	case on == states.Authorize && s == states.Planned:
		return states.Authorized, current && granted
	case (on == states.Revoke || on == states.Expire) && s == states.Authorized:
		return states.Planned, true
	case on == states.Try && s == states.Authorized:
		return states.Trial, current && granted && fresh && !w.moved && w.locked && w.armed
	case on == states.Commit && s == states.Trial:
		return states.Committed, w.verified && w.answers && w.armed && w.held && w.confirmed
	case (on == states.Rollback || on == states.Lapse) && s == states.Trial:
		return states.RolledBack, w.undone
	case on == states.Rollback && s == states.Committed:
		return states.RolledBack, !w.newer && w.undone
	}
	return s, false
}

// facts says the world in the words of the guards.
func (w *world) facts() guards.Facts {
	f := guards.Facts{
		Env: "web", State: w.state, Cycle: w.cycle, BootID: fmt.Sprint("boot-", w.boot), Now: w.now,
		Layer: guards.Layer{Known: true, Digest: fmt.Sprint("layer-", w.layer), Changes: w.changes, TwinLost: w.lost},
		Circuits: []circuit.Definition{
			{ID: "api", Label: "api", Kind: circuit.Canary, Required: true},
			{ID: "lan", Label: "lan", Kind: circuit.TCP, Required: true},
		},
		Observations: map[string]circuit.Observation{},
		HostLock:     guards.Lock{Held: w.locked},
		Lease:        guards.Lease{Armed: w.armed, Held: w.held},
		Trial: guards.Trial{
			Verified: w.verified, ConfirmRequired: true, Confirmed: w.confirmed,
			Results: map[string]circuit.Observation{"lan": {Result: circuit.Preserved}, "api": {Result: circuit.Lost}},
		},
		Undo:    guards.Undo{Verified: w.undone},
		Reverse: guards.Reverse{Known: true},
	}
	for id, s := range map[string]sight{"api": w.api, "lan": w.lan} {
		if s.result != "" {
			f.Observations[id] = circuit.Observation{
				Circuit: id, Result: s.result, Layer: fmt.Sprint("layer-", s.layer),
				BootID: fmt.Sprint("boot-", s.boot), Boottime: s.at,
			}
		}
	}
	if w.plan.cycle > 0 {
		f.Plan = &guards.Plan{Digest: fmt.Sprint("plan-", w.plan.layer), Now: fmt.Sprint("plan-", w.layer), Cycle: w.plan.cycle}
	}
	if w.grant.cycle > 0 {
		f.Grant = &authority.Grant{
			Plan: fmt.Sprint("plan-", w.grant.plan), Cycle: w.grant.cycle,
			BootID: fmt.Sprint("boot-", w.grant.boot), Expires: w.until, Used: w.used,
		}
	}
	if w.answers {
		f.Trial.Results["api"] = circuit.Observation{Result: circuit.Preserved}
	}
	if w.newer {
		f.Reverse.Newer = []string{"apply-2"}
	}
	if w.moved {
		f.Layer.Moved = []guards.Obstacle{{Subject: "/etc/moved"}}
	}
	if w.untyped {
		f.Layer.Untyped = []guards.Obstacle{{Subject: "/run/untyped.sock"}}
	}
	if w.busy {
		f.Processes = []string{"pid 12 sleep"}
	}
	return f
}

// prepare lets happen what surrounds a trigger: what the step gathers, and what
// the rest of the machine does meanwhile.
func (w *world) prepare(t *rapid.T, on states.Trigger) {
	likely := func(what string) bool { return rapid.IntRange(0, 19).Draw(t, what) < 19 }
	w.moved, w.untyped, w.lost, w.busy = !likely("host still"), !likely("typed"), !likely("twin"), !likely("idle")
	w.now += time.Duration(rapid.SampledFrom([]int{0, 1, 1, 59, 60, 61, 600}).Draw(t, "seconds")) * time.Second
	if !likely("no reboot") {
		w.boot, w.now = w.boot+1, time.Minute
	}
	if !likely("nobody edits") {
		w.layer++
	}
	switch on {
	case states.Check, states.Plan, states.Try: // these refresh the circuits first
		if likely("refreshed") {
			results := rapid.SampledFrom([]circuit.Result{
				circuit.Preserved, circuit.Preserved, circuit.Preserved, circuit.Preserved,
				circuit.Lost, circuit.Insensitive, circuit.Unverifiable, circuit.Pending,
			})
			w.api = sight{results.Draw(t, "api"), w.layer, w.boot, w.now}
			w.lan = sight{results.Draw(t, "lan"), w.layer, w.boot, w.now}
		}
		w.locked, w.armed = likely("host free"), likely("keeper")
	case states.Authorize:
		w.grant.plan, w.grant.cycle, w.grant.boot = w.plan.layer, w.cycle, w.boot
		if !likely("grant for this plan") {
			w.grant.plan++
		}
		w.until, w.used = w.now+10*time.Minute, false
	case states.Commit, states.Rollback, states.Lapse:
		w.verified, w.answers, w.held = likely("as planned"), likely("circuits answer"), likely("lease held")
		w.confirmed, w.undone, w.newer = likely("confirmed"), likely("undone"), !likely("newest")
	}
}

// record is what a step records with its move.
func (w *world) record(t *rapid.T, on states.Trigger, to states.State) {
	ended := w.state == states.Committed || w.state == states.RolledBack
	w.state = to
	switch on {
	case states.Stage, states.Exec, states.Reset, states.ResetPartly:
		if ended {
			w.cycle++
		}
		w.layer++
		w.changes = rapid.IntRange(0, 3).Draw(t, "changes")
		w.used = true // a grant is revoked
	case states.Plan:
		w.plan.layer, w.plan.cycle = w.layer, w.cycle
	case states.Try:
		w.used = true
	}
}

func TestMachineAgreesWithItsModel(t *testing.T) {
	triggers := []states.Trigger{
		states.Stage, states.Exec, states.Check, states.Plan, states.Authorize, states.Revoke, states.Expire,
		states.Try, states.Commit, states.Rollback, states.Lapse, states.Reset, states.ResetPartly,
	}
	reached := map[states.State]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{state: states.Created, cycle: 1, boot: 1, now: time.Hour}
		for range rapid.IntRange(40, 120).Draw(t, "steps") {
			on := rapid.SampledFrom(triggers).Draw(t, "trigger")
			// Most walks follow the life of a change; blind ones seldom get there.
			if next, ok := states.Next(w.state); ok && rapid.IntRange(0, 3).Draw(t, "stray") < 3 {
				on = next
			}
			w.prepare(t, on)
			from := w.state
			want, ok := w.model(on)
			got, _, err := decide(t.Context(), w.facts(), on)
			var refused *RefusedError
			switch {
			case ok && err != nil:
				t.Fatalf("%s from %s: %v; the model goes to %s", on, from, err, want)
			case !ok && err == nil:
				t.Fatalf("%s from %s leads to %s; the model refuses", on, from, got)
			case !ok && (!errors.As(err, &refused) || len(refused.Refusals) == 0):
				t.Fatalf("%s from %s: %v is not a refusal with reasons", on, from, err)
			case !ok:
				continue
			case got != want:
				t.Fatalf("%s from %s leads to %s; the model goes to %s", on, from, got, want)
			}
			invariants(t, w, from, on, got)
			w.record(t, on, got)
			reached[got]++
		}
	})
	// Walks that never arrive would agree about nothing.
	for _, s := range states.All() {
		if reached[s] == 0 {
			t.Errorf("no walk reached %s", s)
		}
	}
	t.Logf("moves into each state: %v", reached)
}

// invariants are the promises, said without the model: what must hold whenever
// an environment enters a trial, leaves one, or is committed.
func invariants(t *rapid.T, w *world, from states.State, on states.Trigger, to states.State) {
	if from == states.Trial && to != states.Trial &&
		on != states.Commit && on != states.Rollback && on != states.Lapse {
		t.Fatalf("%s left a trial", on)
	}
	if to == states.Trial && from != states.Trial {
		switch {
		case w.grant.plan != w.layer || w.plan.layer != w.layer:
			t.Fatal("a trial of something else than was planned and granted")
		case w.used || w.grant.cycle != w.cycle:
			t.Fatal("a trial with a grant that was spent")
		case !w.armed || !w.locked:
			t.Fatal("a trial that nobody watches, or beside another")
		}
		for _, s := range []sight{w.api, w.lan} {
			if s.layer != w.layer || s.boot != w.boot || w.now-s.at > circuit.Window || !s.result.Holds() {
				t.Fatalf("a trial on evidence %+v", s)
			}
		}
	}
	if to == states.Committed && from != states.Committed && (from != states.Trial || !w.answers || !w.verified || !w.held) {
		t.Fatal("committed without a host as planned, circuits that answer and a lease")
	}
}
