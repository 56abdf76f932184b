package workflow

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/workflow/clock"
)

// DefaultTimeout bounds one probe in one world.
const DefaultTimeout = 3 * time.Second

// sideBySide is how many circuits are probed at a time. A probe mostly waits, and
// where nothing answers all of them wait for as long as they may.
const sideBySide = 24

// observer runs circuits in the worlds that a judgement needs. It never decides
// anything: package circuit judges, guards decide.
type observer struct {
	env     string // the environment's name
	runner  backends.Runner
	now     clock.Func
	layer   string // digest the observations are bound to
	timeout time.Duration
	// environ is the caller's environment: a canary runs in it and in a fresh
	// login, because each notices settings that the other does not.
	environ []string
}

// all observes every circuit, several at a time but never two at one endpoint:
// a rate limiter must not be what fails.
func (o observer) all(ctx context.Context, defs []circuit.Definition) ([]circuit.Observation, error) {
	return o.each(ctx, defs, o.candidate)
}

// host observes every circuit from the jail, against the host as it is now.
func (o observer) host(ctx context.Context, defs []circuit.Definition) ([]circuit.Observation, error) {
	return o.each(ctx, defs, o.jailed)
}

func (o observer) each(ctx context.Context, defs []circuit.Definition,
	one func(context.Context, circuit.Definition) circuit.Observation,
) ([]circuit.Observation, error) {
	out := make([]circuit.Observation, len(defs))
	turns := make(map[string]chan struct{}) // one at a time, of each endpoint
	for _, d := range defs {
		if turns[d.Endpoint()] == nil {
			turns[d.Endpoint()] = make(chan struct{}, 1)
		}
	}
	slots := make(chan struct{}, sideBySide)
	var wg sync.WaitGroup
	for i, d := range defs {
		wg.Go(func() {
			for _, free := range []chan struct{}{turns[d.Endpoint()], slots} {
				free <- struct{}{}
				defer func() { <-free }()
			}
			out[i] = one(ctx, d)
		})
	}
	wg.Wait()
	return out, ctx.Err()
}

// candidate observes one circuit in the candidate view, and in as many other
// worlds as it takes to know what the answer means.
func (o observer) candidate(ctx context.Context, d circuit.Definition) circuit.Observation {
	if !d.Required {
		return o.stamp(d, circuit.Ignored, "", 0, false)
	}
	if d.Kind == circuit.Inbound {
		r, why, _ := circuit.Judge(d, circuit.Evidence{})
		return o.stamp(d, r, why, 0, false)
	}
	var e circuit.Evidence
	var took time.Duration
	e.Candidate, took = o.ask(ctx, backends.InCandidate, d)
	e.Control, _ = o.ask(ctx, backends.InControl, d)
	if d.Kind == circuit.Canary && e.Candidate.OK {
		e.Cut, _ = o.ask(ctx, backends.InCut, d)
	}
	if e.Control.Ran && !e.Control.OK {
		e.Host, _ = o.ask(ctx, backends.InJail, d)
	}
	r, why, sensitive := circuit.Judge(d, e)
	if r == circuit.Unverifiable && e.Control.Ran && e.Host.OK {
		why += unnamed(o.env, d, e.Control.Reason)
	}
	return o.stamp(d, r, why, took, sensitive)
}

// jailed observes one circuit on the host.
func (o observer) jailed(ctx context.Context, d circuit.Definition) circuit.Observation {
	switch {
	case !d.Required:
		return o.stamp(d, circuit.Ignored, "", 0, false)
	case d.Kind == circuit.Inbound:
		return o.stamp(d, circuit.Unverifiable, "the client is elsewhere; no paired outside probe", 0, false)
	}
	a, took := o.ask(ctx, backends.InJail, d)
	switch {
	case !a.Ran:
		return o.stamp(d, circuit.Unverifiable, a.Reason, took, false)
	case a.OK:
		return o.stamp(d, circuit.Preserved, "", took, false)
	}
	return o.stamp(d, circuit.Lost, a.Reason, took, false)
}

// ask runs one circuit in one world. A canary is asked twice, in a fresh login
// environment and in the caller's; both must pass.
func (o observer) ask(ctx context.Context, where backends.Where, d circuit.Definition) (circuit.Answer, time.Duration) {
	p := backends.Probe{
		Dial: d.Address, Interface: d.Interface, Timeout: o.timeout,
		UID: d.UID, GID: d.GID, Groups: d.Groups, Cwd: d.Cwd,
	}
	if d.Kind != circuit.Canary {
		return o.run(ctx, where, p)
	}
	p.Dial, p.Argv, p.Env, p.Login = "", d.Argv, d.Env, true
	a, took := o.run(ctx, where, p)
	if !a.OK {
		return a, took
	}
	p.Env, p.Login = append(slices.Clone(o.environ), d.Env...), false
	b, more := o.run(ctx, where, p)
	if !b.OK {
		b.Reason = "in the caller's environment: " + b.Reason
	}
	return b, max(took, more)
}

// run runs one probe once. Where it failed and the world meanwhile met something
// that it cannot do as the host would, the failure may be the world's: that is no
// answer. A success is one, however it came about.
func (o observer) run(ctx context.Context, where backends.Where, p backends.Probe) (circuit.Answer, time.Duration) {
	if ctx.Err() != nil {
		return circuit.Answer{Reason: "interrupted"}, 0
	}
	out, err := o.runner.Canary(ctx, where, p)
	if err != nil {
		return circuit.Answer{Reason: err.Error()}, 0
	}
	a := circuit.Answer{Ran: true, OK: out.OK(), Reason: why(out, p.Timeout)}
	if !a.OK && len(out.Unproven) > 0 {
		return circuit.Answer{Reason: unlike(where) + some(out.Unproven)}, out.Took
	}
	if p, ok := o.wanted(ctx, a); ok {
		return circuit.Answer{Reason: "needs " + p + ", which views hide"}, out.Took
	}
	return a, out.Took
}

// unlike introduces what makes an answer of a world none of the host's.
func unlike(where backends.Where) string {
	if where == backends.InJail {
		return "a canary is not treated as its user would be: "
	}
	return "the twin cannot do as the host would: "
}

// some joins what a reader can take in on one line.
func some(limits []string) string {
	const most = 3
	if n := len(limits) - most; n > 0 {
		limits = append(slices.Clone(limits[:most]), "and "+itoa(n)+" more")
	}
	return strings.Join(limits, "; ")
}

// wanted finds the hidden path that a failed probe complains of. Programs name
// the file that they cannot read, and a world without it is not the one that the
// circuit is about: it could not be run there, which is not the same as lost.
func (o observer) wanted(ctx context.Context, a circuit.Answer) (string, bool) {
	view, ok := o.runner.(backends.Concealer)
	if a.OK || !ok {
		return "", false
	}
	hidden, _, err := view.Covers(ctx)
	if err != nil {
		return "", false // the answer stands as it is
	}
	for _, c := range hidden {
		p := change.Escape(c.Path)
		if _, rest, ok := strings.Cut(a.Reason, p); ok && (rest == "" || !strings.ContainsAny(rest[:1], nameBytes)) {
			return p, true
		}
	}
	return "", false
}

// nameBytes go on a name: what they follow is another file.
const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

// why says how a probe failed, with the last line of what it printed: that is
// where programs put the reason.
func why(o backends.Outcome, limit time.Duration) string {
	var s string
	switch {
	case o.OK():
		return ""
	case o.Err != "":
		s = o.Err
	case o.TimedOut:
		s = "timed out after " + limit.String()
	case o.Signal != 0:
		s = "killed by signal " + itoa(o.Signal)
	default:
		s = "exit status " + itoa(o.Exit)
	}
	raw, err := change.Unescape(o.Output)
	if err != nil {
		raw = o.Output
	}
	lines := strings.Split(strings.TrimSpace(raw), "\n")
	if last := lines[len(lines)-1]; last != "" {
		s += ": " + clip(change.Escape(last), 160)
	}
	return s
}

func (o observer) stamp(d circuit.Definition, r circuit.Result, why string, took time.Duration, sensitive bool) circuit.Observation {
	ob := circuit.Observation{Circuit: d.ID, Result: r, Reason: why, Layer: o.layer, Took: took, Sensitive: sensitive}
	// The instant is taken after the probe: an observation must not look younger
	// than it is, and a probe is short beside the window.
	if now, err := o.now(); err == nil {
		ob.BootID, ob.Boottime, ob.At = now.BootID, now.Boottime, now.At
	} // without an instant it is stale from the start, which fails closed
	return ob
}
