package linuxns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/upper"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// Stage implements [backends.Layer].
func (v *View) Stage(ctx context.Context, path change.Path, c backends.Candidate) error {
	op := wire.Op{Name: wire.OpStage, Path: path, Delete: c.Delete, Like: c.Like}
	var fds []int
	if c.From != nil {
		fds = append(fds, int(c.From.Fd()))
	}
	if _, err := v.call(ctx, true, op, fds...); err != nil {
		return fmt.Errorf("stage %s: %w", path, err)
	}
	return nil
}

// Changes implements [backends.Layer].
func (v *View) Changes(ctx context.Context) (backends.Difference, error) {
	rec, err := v.dir().Load()
	if errors.Is(err, fs.ErrNotExist) {
		return backends.Difference{}, nil // never built
	}
	if err != nil {
		return backends.Difference{}, err
	}
	when, err := rec.Window()
	if err != nil {
		return backends.Difference{}, err
	}
	d, err := upper.Diff(v.spec.Dir, upper.DiffOptions{
		Env: v.spec.Name, Base: v.spec.Base, TView: when.TView, TExec: when.TExec, Stepped: when.Stepped,
		Stop: ctx.Err,
	})
	if err != nil {
		return backends.Difference{}, fmt.Errorf("derive changes: %w", err)
	}
	mounted, err := v.mountBlockers(d.Changes)
	if err != nil {
		return backends.Difference{}, fmt.Errorf("compare mounts: %w", err)
	}
	d.Blockers = append(d.Blockers, mounted...)
	// Without a holder there is no twin to differ; that it is lost blocks a plan
	// elsewhere.
	r, err := v.call(ctx, false, wire.Op{Name: wire.OpTwin})
	if errors.Is(err, errNoHolder) {
		return d, nil
	}
	if err != nil {
		return backends.Difference{}, fmt.Errorf("compare twin: %w", err)
	}
	d.Network = append(d.Network, r.Lines...)
	d.Blockers = append(d.Blockers, r.Blocked...)
	return d, nil
}

// Outdated implements [backends.Dated]. What the holder recorded may be of the
// view before; then it is more that may be outdated, not less.
func (v *View) Outdated(_ context.Context, paths []change.Path) ([]change.Path, error) {
	rec, err := v.dir().Load()
	if errors.Is(err, fs.ErrNotExist) || err == nil && rec.View.Time == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	when, err := rec.Window()
	if err != nil {
		return nil, err
	}
	return upper.Outdated(upper.Window(when), paths)
}

// Content implements [backends.Layer].
func (v *View) Content(_ context.Context, path change.Path) (*os.File, error) {
	return upper.Open(v.spec.Dir, path)
}

// Reset implements [backends.Layer].
func (v *View) Reset(ctx context.Context, r backends.Reset) error {
	if _, err := v.call(ctx, true, wire.Op{Name: wire.OpReset, Reset: r}); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if r.Settled {
		return nil
	}
	// Copies of files that are mounted alone are in no layer.
	if err := builder.DropCopies(v.dir(), r.Paths...); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

// Relay implements [backends.Inhabited].
func (v *View) Relay(ctx context.Context, ports ...uint16) error {
	if _, err := v.call(ctx, true, wire.Op{Name: wire.OpRelay, Ports: ports}); err != nil {
		return fmt.Errorf("relay ports: %w", err)
	}
	return nil
}
