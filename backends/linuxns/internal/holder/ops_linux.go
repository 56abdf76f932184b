package holder

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// dispatch runs one operation of the workflow.
func (h *Holder) dispatch(c *wire.Conn, op wire.Op, fds []int, r *wire.Reply) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch op.Name {
	case wire.OpBuild:
		_, err := h.ensure(context.Background(), false)
		r.Mounts, r.Notes = h.rec.Mounts, append(h.rec.Notes, h.built...)
		r.Status = &backends.Status{Mode: h.mode.Name}
		return err
	case wire.OpStatus:
		return h.status(r)
	case wire.OpStop, wire.OpQuit:
		return h.stop()
	}
	return fmt.Errorf("%s: %w", op.Name, errors.ErrUnsupported)
}

func (h *Holder) status(r *wire.Reply) error {
	ps, err := h.inhabitants()
	if err != nil {
		return err
	}
	s := backends.Status{Holder: os.Getpid(), Mode: h.mode.Name, Processes: ps}
	if h.view != nil && h.view.alive() {
		s.Init = h.view.proc.Pid
	}
	if _, err := os.Stat(h.dir.Path(envdir.TwinLost)); err == nil {
		s.TwinLost = true
	}
	r.Status = &s
	return nil
}
