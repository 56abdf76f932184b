package workflow

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/workflow/clock"
)

// worlds answers each probe as the world it is asked in does.
type worlds map[backends.Where]answer

type answer struct {
	name string
	out  backends.Outcome
	err  error
}

func (w worlds) Canary(_ context.Context, where backends.Where, _ backends.Probe) (backends.Outcome, error) {
	return w[where].out, w[where].err
}

var (
	limited     = []string{"eth1 via 198.51.100.1: the interface is down on the host"}
	passes      = answer{name: "passes"}
	passesLimit = answer{name: "passes within limits", out: backends.Outcome{Unproven: limited}}
	fails       = answer{name: "fails", out: backends.Outcome{Exit: 7}}
	failsLimit  = answer{name: "fails within limits", out: backends.Outcome{Exit: 7, Unproven: limited}}
	cannot      = answer{name: "does not run", err: errors.New("no room")}
)

func look(w worlds, kind circuit.Kind) circuit.Observation {
	o := observer{runner: w, now: clock.Now}
	return o.candidate(context.Background(), circuit.Definition{ID: "c-1", Kind: kind, Required: true, Argv: []string{"probe"}, Address: "192.0.2.1:80"})
}

func TestLimitsOfTheTwin(t *testing.T) {
	for _, row := range []struct {
		name   string
		worlds worlds
		want   circuit.Result
		reason string
	}{
		{
			"the candidate fails within a limit, the control view passes",
			worlds{backends.InCandidate: failsLimit, backends.InControl: passes},
			circuit.Unverifiable, "candidate view: the twin cannot do as the host would: " + limited[0],
		},
		{
			"both fail, the candidate within a limit: the candidate's reason is given",
			worlds{backends.InCandidate: failsLimit, backends.InControl: fails, backends.InJail: passes},
			circuit.Unverifiable, "candidate view: the twin cannot do as the host would: " + limited[0],
		},
		{
			"the candidate fails, the control view within a limit",
			worlds{backends.InCandidate: fails, backends.InControl: failsLimit},
			circuit.Unverifiable, "control view: the twin cannot do as the host would: " + limited[0],
		},
		{
			"the candidate fails without one: what the control view met while it passed is no excuse",
			worlds{backends.InCandidate: fails, backends.InControl: passesLimit},
			circuit.Lost, "exit status 7",
		},
		{
			"a success within a limit is a success",
			worlds{backends.InCandidate: passesLimit, backends.InControl: passes, backends.InCut: fails},
			circuit.Preserved, "",
		},
		{
			"nothing is new because of a limit of the control view",
			worlds{backends.InCandidate: passes, backends.InControl: failsLimit, backends.InCut: fails, backends.InJail: fails},
			circuit.Preserved, "",
		},
		{
			"both views fail, and a canary is somebody else to the host",
			worlds{backends.InCandidate: fails, backends.InControl: fails, backends.InJail: failsLimit},
			circuit.Unverifiable, "fails on an unchanged twin too, and the host cannot tell: a canary is not treated as its user would be: " + limited[0],
		},
		{
			"the way could not be made",
			worlds{backends.InCandidate: cannot, backends.InControl: passes},
			circuit.Unverifiable, "candidate view: no room",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, kind := range []circuit.Kind{circuit.TCP, circuit.Canary} {
				if got := look(row.worlds, kind); got.Result != row.want || got.Reason != row.reason {
					t.Errorf("%s: %s, %q; want %s, %q", kind, got.Result, got.Reason, row.want, row.reason)
				}
			}
		})
	}
}

// TestLimitsNeverLose asks every combination of answers: a failure within a limit
// is never the change's fault, and a success never less than one without limits.
func TestLimitsNeverLose(t *testing.T) {
	all := []answer{passes, passesLimit, fails, failsLimit, cannot}
	plain := map[string]answer{passesLimit.name: passes}
	for _, candidate := range all {
		for _, control := range all {
			for _, cut := range []answer{passes, fails, cannot} {
				for _, host := range []answer{passes, fails, cannot} {
					w := worlds{backends.InCandidate: candidate, backends.InControl: control, backends.InCut: cut, backends.InJail: host}
					got := look(w, circuit.Canary)
					excused := candidate.name == failsLimit.name || control.name == failsLimit.name
					if got.Result == circuit.Lost && excused {
						t.Errorf("candidate %s, control %s: lost", candidate.name, control.name)
					}
					if got.Result.Holds() != (candidate.err == nil && candidate.out.OK()) {
						t.Errorf("candidate %s, control %s: %s", candidate.name, control.name, got.Result)
					}
					for where, a := range w {
						if p, ok := plain[a.name]; ok {
							w[where] = p
						}
					}
					if without := look(w, circuit.Canary); without.Result != got.Result {
						t.Errorf("candidate %s, control %s: %s, and %s without limits met in passing", candidate.name, control.name, got.Result, without.Result)
					}
				}
			}
		}
	}
}

func TestManyLimitsAreCounted(t *testing.T) {
	w := worlds{backends.InCandidate: {out: backends.Outcome{Exit: 1, Unproven: strings.Split("a b c d e", " ")}}}
	if got := look(w, circuit.TCP); !strings.HasSuffix(got.Reason, ": a; b; c; and 2 more") {
		t.Errorf("%q", got.Reason)
	}
}

// silence waits for as long as a probe may, and answers at once without the change.
type silence struct{}

func (silence) Canary(_ context.Context, where backends.Where, p backends.Probe) (backends.Outcome, error) {
	if where != backends.InCandidate {
		return backends.Outcome{}, nil
	}
	time.Sleep(p.Timeout)
	return backends.Outcome{Exit: -1, TimedOut: true}, nil
}

// TestTwentyCircuitsWaitSideBySide: a default route by which nobody answers is
// known after one timeout and not after twenty. Those of one endpoint wait for each
// other.
func TestTwentyCircuitsWaitSideBySide(t *testing.T) {
	for _, row := range []struct {
		name    string
		address func(n int) string
		want    time.Duration
	}{
		{"twenty endpoints", func(n int) string { return "192.0.2.1:" + itoa(n+1) }, DefaultTimeout},
		{"two endpoints", func(n int) string { return "192.0.2.1:" + itoa(n%2+1) }, 10 * DefaultTimeout},
	} {
		t.Run(row.name, func(t *testing.T) {
			var defs []circuit.Definition
			for n := range 20 {
				defs = append(defs, circuit.Definition{ID: "c-" + itoa(n), Kind: circuit.TCP, Required: true, Address: row.address(n)})
			}
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				o := observer{runner: silence{}, now: clock.Now, timeout: DefaultTimeout}
				seen, err := o.all(t.Context(), defs)
				if took := time.Since(begun); err != nil || took != row.want {
					t.Errorf("took %v, want %v: %v", took, row.want, err)
				}
				for _, s := range seen {
					if s.Result != circuit.Lost {
						t.Errorf("%+v", s)
					}
				}
			})
		})
	}
}
