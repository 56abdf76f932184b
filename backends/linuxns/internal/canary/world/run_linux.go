package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/canary"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// Env is what the worlds of one environment are made from. Descriptors stay the
// caller's and must live until [Env.Run] returns.
type Env struct {
	Dir       envdir.Dir
	StateRoot string
	Hide      []string
	Secrets   *backends.Secrets
	Mode      harden.Mode
	// User is the sibling of the view's user namespace, with the same map. In the
	// view's own one, root inside could take a canary's descriptors by
	// pidfd_getfd(2). -1 where the mode has none.
	User int
	Net  int // the view's network
	// View is the twin that fills it; only the candidate needs it.
	View *nettwin.Twin
	// Merged is the mount namespace that the live view was built in; only the
	// candidate needs it. A candidate pins the view's overlays: it must have ended
	// before they are mounted again.
	Merged *os.File
	Exe    int // the program that becomes PID 1
	// Silent lists mounts that are not to be asked.
	Silent []string
	// Networks are shared by the control and cut worlds of an environment, which
	// are made as Twin says.
	Networks *Networks
	Twin     nettwin.Options
	// Ensure makes again what others took from the host of what twins need there.
	// Nil: twins need nothing.
	Ensure func() error
	// Pings reports whether the host lets a probe's user send echo requests from
	// the jail. Nil: that is not asked.
	Pings func(backends.Probe) (bool, error)
	// Cgroup returns the descriptor of a new cgroup and what kills everything in
	// it and removes it. Nil: none.
	Cgroup func() (fd int, remove func() error, err error)
}

const (
	// defaultTimeout bounds a probe that names no limit.
	defaultTimeout = 30 * time.Second
	// buildTime bounds a build.
	buildTime = 60 * time.Second
	// grace is what PID 1 gets beyond the probe's time, to say that it is up.
	grace = 2 * time.Second
)

// Run runs one probe in a fresh world.
func (e Env) Run(ctx context.Context, where backends.Where, p backends.Probe) (out backends.Outcome, err error) {
	if p.Timeout <= 0 {
		p.Timeout = defaultTimeout
	}
	r := builder.Request{
		Dir: e.Dir, StateRoot: e.StateRoot, Hide: e.Hide, Secrets: e.Secrets, Mode: e.Mode,
		User: e.User, Net: -1, Cgroup: -1, Exe: e.Exe, Throwaway: true, Run: -1, Silent: e.Silent,
	}
	var twin *nettwin.Twin // whose limits count
	switch where {
	case backends.InCandidate:
		r.Net, r.Merged, twin = e.Net, e.Merged, e.View
		if e.Merged == nil {
			return out, errors.New("no view is built")
		}
	case backends.InControl, backends.InCut:
		opt := e.Twin
		opt.Cut = where == backends.InCut
		net, done, err := e.Networks.use(ctx, e.User, opt)
		if err != nil {
			return out, err
		}
		defer done()
		// That a canary fails with the way out cut is what it is there for.
		if r.Net = net.fd; where == backends.InControl {
			twin = net.twin
		}
	case backends.InJail:
	default:
		return out, fmt.Errorf("no world is called %q", where)
	}
	if twin != nil {
		w, err := e.watch(twin)
		if err != nil {
			return out, err
		}
		defer func() { out.Unproven = append(out.Unproven, w.met()...) }()
	}
	if e.Cgroup != nil {
		fd, remove, err := e.Cgroup()
		if err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, remove()) }()
		r.Cgroup = fd
	}
	return e.ask(ctx, r, p, where == backends.InJail)
}

// ask builds the view and talks to its PID 1.
func (e Env) ask(ctx context.Context, r builder.Request, p backends.Probe, jail bool) (out backends.Outcome, err error) {
	c, theirs, err := wire.Pair()
	if err != nil {
		return out, err
	}
	defer c.Close()
	// The socket keeps it until PID 1 has come up to read it.
	err = c.Send(wire.Boot{Mode: e.Mode.Name, Canary: true, Scope: jail}, nil)
	if err != nil {
		unix.Close(theirs)
		return out, err
	}
	r.Socket = theirs
	// A build that is given up goes on for a moment in the background, with the
	// view's overlays in its hands; whoever cancels may be about to mount those
	// again. So it is awaited, and short.
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), buildTime)
	defer cancel()
	v, err := builder.Build(patient, r)
	unix.Close(theirs)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, end(v)) }()

	// PID 1 keeps the time, and so does this side: the probe may have stopped it.
	deadline := time.Now().Add(p.Timeout + grace)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := c.SetDeadline(deadline); err != nil {
		return out, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	out, asked, err := canary.Ask(c, p, jail && e.Pings != nil)
	switch {
	case ctx.Err() != nil:
		return backends.Outcome{}, fmt.Errorf("run canary: %w", ctx.Err())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return backends.Outcome{Exit: -1, TimedOut: true, Took: p.Timeout + grace}, nil
	case errors.Is(err, canary.ErrNoReport):
		return backends.Outcome{Exit: -1, Err: err.Error()}, nil
	}
	if err == nil && !out.OK() {
		out.Unproven, err = e.lacked(p, asked)
	}
	return out, err
}

// lacked names what a canary in the jail asked for and only others get: whoever
// pings has ping sockets by a group, or raw ones by a capability. Where ping
// sockets are given, that raw ones were tried before or after says nothing.
func (e Env) lacked(p backends.Probe, asked canary.Asked) ([]string, error) {
	if !asked.Ping && !asked.Raw {
		return nil, nil
	}
	given, err := e.Pings(p)
	switch {
	case err != nil:
		return nil, err
	case asked.Ping && given:
		return nil, nil
	case asked.Raw && !asked.Ping:
		return []string{"raw sockets: a canary on the host has no capability"}, nil
	}
	return []string{"ping: a canary is in no group that the host gives ping sockets to (net.ipv4.ping_group_range)"}, nil
}

// end kills PID 1, and with it all of its pid namespace, and waits for that.
func end(v *builder.View) error {
	v.MountNS.Close()
	p, err := os.FindProcess(v.PID)
	if err != nil {
		return fmt.Errorf("find canary: %w", err)
	}
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end canary: %w", err)
	}
	if _, err := p.Wait(); err != nil {
		return fmt.Errorf("wait for canary: %w", err)
	}
	return nil
}
