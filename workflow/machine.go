package workflow

import (
	"context"
	"fmt"

	"github.com/qmuntal/stateless"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
)

// decide asks the machine where a trigger leads. It is pure: the machine is
// made for this one question, told the stored state, and thrown away, so the
// caller can run it inside the transaction that compares and sets that state.
//
// The library keeps only a bool of a guard, so the refusals are collected beside
// it; firing is immediate because nothing may be queued behind an answer; and
// there are no entry actions, since those run when the state is set already and
// stays so when they fail.
//
// A move that no guard permits returns a [RefusedError]. An edge that demotes
// returns its Else state together with the refusals that led there.
func decide(ctx context.Context, f guards.Facts, on states.Trigger) (states.State, []guards.Refusal, error) {
	from, err := states.Parse(string(f.State))
	if err != nil {
		return "", nil, fmt.Errorf("environment %s: %w", f.Env, err)
	}
	edge, ok := states.Find(from, on)
	if !ok {
		return "", nil, impossible(f, on)
	}
	var refusals []guards.Refusal
	m := stateless.NewStateMachineWithMode(from, stateless.FiringImmediate)
	for _, e := range states.Table() {
		m.Configure(e.From).PermitDynamic(e.On,
			func(context.Context, ...any) (stateless.State, error) {
				if len(refusals) > 0 {
					return e.Else, nil
				}
				return e.To, nil
			},
			func(context.Context, ...any) bool {
				refusals = guards.Check(e.Guards, f)
				return len(refusals) == 0 || e.Else != ""
			})
	}
	if err := m.FireCtx(ctx, on); err != nil {
		if len(refusals) > 0 {
			return "", nil, &RefusedError{Env: f.Env, From: from, On: on, Refusals: refusals}
		}
		return "", nil, fmt.Errorf("fire %s: %w", edge, err)
	}
	st, err := m.State(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("fire %s: %w", edge, err)
	}
	return st.(states.State), refusals, nil
}

// tableGuard stands for the table where a refusal names its guard.
const tableGuard = "table"

// impossible is the refusal of the table itself.
func impossible(f guards.Facts, on states.Trigger) error {
	r := guards.Refusal{Guard: tableGuard, Reason: fmt.Sprintf("%s does not lead anywhere from %s", on, f.State), Fix: "netsandbox status " + f.Env}
	switch {
	case f.State == states.Trial:
		r.Reason, r.Fix = "a trial is on the host", "netsandbox recover"
	case on == states.Plan && f.State == states.Authorized:
		r.Reason, r.Fix = "its plan is authorized", "netsandbox revoke "+f.Env
	case on == states.Plan || on == states.Authorize || on == states.Try:
		if next, ok := states.Next(f.State); ok {
			r.Reason, r.Fix = "next is "+verb(next), command(next, f)
		} else {
			r.Reason, r.Fix = "next is a change", fmt.Sprintf("netsandbox exec %s -- COMMAND", f.Env)
		}
	case on == states.Check:
		r.Reason, r.Fix = "next is a change", fmt.Sprintf("netsandbox exec %s -- COMMAND", f.Env)
	}
	return &RefusedError{Env: f.Env, From: f.State, On: on, Refusals: []guards.Refusal{r}}
}

// command is the whole command line that fires a trigger.
func command(t states.Trigger, f guards.Facts) string {
	s := fmt.Sprintf("netsandbox %s %s", verb(t), f.Env)
	switch {
	case t == states.Try:
		s += " --yes"
	case t == states.Authorize && f.Plan != nil:
		s += " --plan " + f.Plan.Digest
	case t == states.Authorize:
		s += " --plan DIGEST"
	}
	return s
}

// verb is the command that fires a trigger.
func verb(t states.Trigger) string {
	if t == states.Try || t == states.Commit {
		return "apply"
	}
	return string(t)
}
