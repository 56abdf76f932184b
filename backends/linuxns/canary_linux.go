package linuxns

import (
	"context"
	"errors"
	"fmt"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/canary"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// Canary implements [backends.Runner]. The holder makes the throw-away view and
// takes it down; it also does so when this connection ends, so a caller that is
// interrupted or killed leaves no canary behind.
func (v *View) Canary(ctx context.Context, where backends.Where, p backends.Probe) (backends.Outcome, error) {
	fail := func(err error) (backends.Outcome, error) {
		return backends.Outcome{}, fmt.Errorf("run canary in %s of %s: %w", where, v.spec.Name, err)
	}
	var r wire.Reply
	err := v.exchange(ctx, true, func(c *wire.Conn) error {
		defer c.Close()
		stop := context.AfterFunc(ctx, func() { c.Close() })
		defer stop()
		if err := c.Send(wire.Op{Name: wire.OpCanary, Where: where}, canary.Pack(p)); err != nil {
			return err
		}
		_, fds, err := c.Recv(&r)
		wire.CloseAll(fds)
		return err
	})
	if ctx.Err() != nil {
		return fail(ctx.Err())
	}
	if err != nil {
		return fail(err)
	}
	if err := r.Err(); err != nil {
		return fail(err)
	}
	if r.Outcome == nil {
		return fail(errors.New("the holder gave no outcome"))
	}
	return *r.Outcome, nil
}
