package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/upper"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// dispatch runs one operation of the workflow under the lock.
func (h *Holder) dispatch(op wire.Op, fds []int, r *wire.Reply) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.view
	err := h.do(op, fds, r)
	if h.view != was { // built or ended
		err = errors.Join(err, h.record())
	}
	return err
}

func (h *Holder) do(op wire.Op, fds []int, r *wire.Reply) error {
	// An operation that has begun is finished: its caller may be gone.
	ctx := context.Background()
	switch op.Name {
	case wire.OpBuild:
		_, err := h.ensure(ctx, false)
		r.Mounts, r.Notes = h.rec.Mounts, slices.Concat(h.notes, h.built, h.twin.Notes())
		r.Status = &backends.Status{Mode: h.mode.Name}
		return err
	case wire.OpStatus:
		return h.status(r)
	case wire.OpStop, wire.OpQuit:
		return h.stop()
	case wire.OpStage:
		var from *os.File
		if len(fds) > 0 {
			dup, err := unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				return err
			}
			from = os.NewFile(uintptr(dup), "candidate")
			defer from.Close()
		}
		return h.stage(ctx, op.Path, backends.Candidate{From: from, Delete: op.Delete, Like: op.Like})
	case wire.OpReset:
		return h.reset(op.Reset)
	case wire.OpTwin:
		return h.compareTwin(r)
	case wire.OpRelay:
		return h.addRelay(op.Ports)
	}
	return fmt.Errorf("%s: %w", op.Name, errors.ErrUnsupported)
}

func (h *Holder) status(r *wire.Reply) error {
	ps, err := h.inhabitants()
	if err != nil {
		return err
	}
	s := backends.Status{Holder: os.Getpid(), Mode: h.mode.Name, Processes: ps, Notes: h.twin.Notes()}
	if h.view != nil && h.view.alive() {
		s.Init, s.Since = h.view.proc.Pid, h.rec.View.Time
		w, err := h.window()
		if err != nil {
			return err
		}
		if w.Stepped {
			s.Since = 1
		}
	}
	s.TwinLost = h.twinLost()
	r.Status = &s
	return nil
}

// twinLost reports whether the twin is another one than the inside has changed. A
// relay that died took the way out with it, whatever the twin looks like.
func (h *Holder) twinLost() bool {
	_, err := os.Stat(h.dir.Path(envdir.TwinLost))
	return err == nil || h.twin.Status().Relay == 0
}

// reset drops differential content. The layers are edited while nothing has
// them mounted; the next command builds the view again.
func (h *Holder) reset(r backends.Reset) error {
	if reflect.ValueOf(r).IsZero() {
		busy, err := h.busy() // by a check, or a command that has no process yet
		if err == nil && busy {
			err = fmt.Errorf("%w, or about to be", backends.ErrBusyView)
		}
		if err != nil {
			return err
		}
	}
	if !r.Stop {
		ps, err := h.inhabitants()
		if err != nil {
			return err
		}
		if len(ps) > 0 {
			return named(ps)
		}
	}
	for _, p := range r.Paths {
		if !below(string(p), h.spec.Base) {
			return fmt.Errorf("%s: %w", p, backends.ErrOutsideBase)
		}
	}
	if err := h.stop(); err != nil {
		return err
	}
	if err := h.edit(r); err != nil {
		return err
	}
	if !r.Network {
		return nil
	}
	// /run belongs to it: its resolver files are part of the network.
	h.dropRun()
	if err := h.renewTwin(); err != nil {
		return fmt.Errorf("make twin anew: %w", err)
	}
	if err := os.Remove(h.dir.Path(envdir.TwinLost)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget lost twin: %w", err)
	}
	return nil
}

func (h *Holder) edit(r backends.Reset) error {
	switch {
	case r.Settled:
		return upper.Settle(h.spec.Dir, r.Paths)
	case r.All:
		if err := upper.RemoveAll(h.spec.Dir); err != nil {
			return err
		}
		return h.dropCopies()
	case len(r.Paths) > 0:
		return upper.Remove(h.spec.Dir, r.Paths)
	}
	return nil
}

// dropCopies removes the private copies of single-file mounts; the next build
// takes new ones.
func (h *Holder) dropCopies() error {
	entries, err := os.ReadDir(h.dir.Path(envdir.Files))
	if err != nil {
		return fmt.Errorf("drop private copies: %w", err)
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(h.dir.Path(envdir.Files), e.Name())); err != nil {
			return fmt.Errorf("drop private copy: %w", err)
		}
	}
	return nil
}

// freeze stops the view for as long as the client stays connected. Commands
// that arrive meanwhile wait; other operations do not.
func (h *Holder) freeze(c *wire.Conn) error {
	h.mu.Lock()
	if h.view != nil && h.view.alive() {
		if err := h.group.Freeze(viewGroup, true, patience); err != nil {
			err = errors.Join(err, h.thaw())
			h.mu.Unlock()
			return err
		}
	}
	h.frozen++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.frozen--
		if h.frozen == 0 {
			if err := h.thaw(); err != nil {
				fmt.Fprintln(os.Stderr, "holder:", err)
			}
			h.thawed.Broadcast()
		}
	}()
	if err := c.Send(wire.Reply{}, nil); err != nil {
		return err
	}
	c.HungUp()
	return nil
}

func (h *Holder) thaw() error {
	if h.view == nil || !h.view.alive() || !h.group.Unified() {
		return nil
	}
	return h.group.Freeze(viewGroup, false, patience)
}

// named is the error of an operation that would end processes.
func named(ps []backends.Process) error {
	var names string
	for i, p := range ps {
		if i > 0 {
			names += ", "
		}
		names += fmt.Sprintf("%s (%d)", change.Escape(p.Comm), p.PID)
	}
	return fmt.Errorf("%w: %s", backends.ErrBusyView, names)
}
