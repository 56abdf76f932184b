package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// The groups below an environment's.
const (
	viewGroup   = "view"
	canaryGroup = "canary"
)

// buildTime bounds one build. A filesystem that hangs has its own, shorter
// limit; this one is for what nobody thought of.
const buildTime = 60 * time.Second

// view is a built view with its PID 1.
type view struct {
	conn *wire.Conn
	proc *os.Process
	gone chan struct{} // closed when everything in the pid namespace is gone
	ns   *os.File      // the builder's mount namespace
	made time.Time
}

func (v *view) alive() bool {
	select {
	case <-v.gone:
		return false
	default:
		return true
	}
}

// young is how long a view in which nothing lives is good for what needs no new
// one for every step, as the probes of one check.
const young = time.Second

// ensure returns a live view for something that writes to it. With fresh, one in
// which nothing lives is built again first, otherwise only where it is not young:
// an overlay keeps serving names and files that the host has replaced since it
// was mounted. The caller holds h.mu.
func (h *Holder) ensure(ctx context.Context, fresh bool) (*view, error) {
	if v := h.view; v != nil && v.alive() {
		switch lives, err := h.lives(); {
		case err != nil || lives:
			return v, err
		case h.canaries.any(), !fresh && time.Since(v.made) < young:
			return v, h.begin()
		}
	}
	return h.rebuild(ctx)
}

// look returns a live view for something that only looks at it. The caller holds
// h.mu.
func (h *Holder) look(ctx context.Context) (*view, error) {
	if v := h.view; v != nil && v.alive() {
		busy, err := h.busy()
		if err != nil || busy || time.Since(v.made) < young {
			return v, err
		}
	}
	return h.rebuild(ctx)
}

// rebuild ends the view, if there is one, and builds it again.
func (h *Holder) rebuild(ctx context.Context) (*view, error) {
	if err := h.stop(); err != nil {
		return nil, err
	}
	return h.build(ctx)
}

// stop ends the view if there is one, and everything that keeps its layers
// mounted; user and network namespace stay, and what was in /run. The caller
// holds h.mu.
func (h *Holder) stop() error {
	v := h.view
	if v == nil {
		return nil
	}
	h.canaries.end()
	// One that was just reaped is gone in a moment.
	if err := v.proc.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) && v.alive() {
		return fmt.Errorf("end view: %w", err)
	}
	select {
	case <-v.gone:
	case <-time.After(patience):
		return fmt.Errorf("end view: process %d does not die", v.proc.Pid)
	}
	// The mount time of this view dates its entries, so before that changes.
	if err := h.date(); err != nil {
		return err
	}
	// From the namespace that is about to be closed: /run is no layer, and a
	// resolver's files edited there must outlive a rebuild.
	h.keepRun(v.ns)
	v.conn.Close()
	// Before anything is mounted over the same uppers again.
	v.ns.Close()
	h.view = nil
	h.rec.Init, h.rec.InitStart = 0, 0
	return nil
}

// build makes a new view. The caller holds h.mu and nothing of an old one is left.
func (h *Holder) build(ctx context.Context) (_ *view, err error) {
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	conn, socket, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer unix.Close(socket)
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	if err := conn.Send(wire.Boot{Mode: h.mode.Name, Name: h.spec.Name}, nil); err != nil {
		return nil, err
	}
	group, err := h.group.View(viewGroup, h.mode.Shift)
	if err != nil {
		return nil, err
	}
	if group >= 0 {
		defer unix.Close(group)
	}
	// Before the first mount: whatever the host changes from now on may differ
	// from what the view shows.
	now, err := h.dir.Stamp()
	if err != nil {
		return nil, err
	}
	built, err := h.onBuilder(ctx, builder.Request{
		Dir: h.dir, StateRoot: h.spec.StateRoot, Hide: h.spec.Hide, Secrets: h.spec.Secrets, Mode: h.mode,
		User: h.user, Net: h.net, Cgroup: group, Exe: h.exe, Socket: socket, Run: h.run, Silent: h.silent,
	})
	if err != nil {
		return nil, fmt.Errorf("build view: %w", err)
	}
	if err := h.group.Place(built.PID); err != nil {
		built.Abandon()
		return nil, err
	}
	h.dropRun()
	v := &view{conn: conn, ns: built.MountNS, gone: make(chan struct{}), made: time.Now()}
	if v.proc, err = os.FindProcess(built.PID); err != nil {
		built.MountNS.Close()
		return nil, fmt.Errorf("follow init: %w", err)
	}
	go func() {
		v.proc.Wait()
		close(v.gone)
		h.sessions.closeAll(v)
	}()
	h.view = v
	h.rec.Init = built.PID
	h.rec.InitStart, _ = envdir.StartTime(built.PID)
	h.rec.View, h.rec.Exec = now, now
	h.rec.Mounts, h.built, h.silent = built.Mounts, built.Notes, built.Silent
	if built.Resolver != nil {
		if err := h.dir.StoreResolver(built.Resolver); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// onBuilder builds on the holder's builder thread, which is under the limits of
// views. One that hangs is left behind.
func (h *Holder) onBuilder(ctx context.Context, r builder.Request) (*builder.View, error) {
	if h.builder == nil {
		t, err := builder.NewThread(h.group.Enter)
		if err != nil {
			return nil, err
		}
		h.builder = t
	}
	v, err := h.builder.Build(ctx, r)
	if ctx.Err() != nil {
		h.builder.Close()
		h.builder = nil
	}
	return v, err
}
