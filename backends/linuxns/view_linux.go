package linuxns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/client"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/cgroup"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/erase"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/holder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// View is one environment. It holds nothing but the spec: every operation asks
// the environment's holder.
type View struct{ spec backends.Spec }

func (v *View) dir() envdir.Dir { return envdir.Dir(v.spec.Dir) }

// errNoHolder: nothing keeps the environment at the moment.
var errNoHolder = errors.New("no holder")

// dyingTime bounds how long holders that end before they listen are followed by
// another try. One that is killed is gone in milliseconds.
const dyingTime = 10 * time.Second

// exchange connects to the holder and talks to it; with start, one is started
// where none lives. A holder that ended before it read anything counts as none,
// and talk is called again with the next; anything else may have had effects.
func (v *View) exchange(ctx context.Context, start bool, talk func(*wire.Conn) error) error {
	for end := time.Now().Add(dyingTime); ; {
		c, err := v.dial(ctx, start)
		if err == nil {
			err = talk(c)
		}
		if !wire.Unheard(err) || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// dial connects to the holder; with start, one is started where none lives.
func (v *View) dial(ctx context.Context, start bool) (*wire.Conn, error) {
	c, err := wire.Dial(v.spec.Dir, envdir.OpSocket)
	if !wire.Refused(err) {
		return c, err
	}
	if !start {
		return nil, errNoHolder
	}
	if err := client.Start(ctx, v.spec); err != nil {
		return nil, err
	}
	return wire.DialAgain(v.spec.Dir, envdir.OpSocket)
}

// call runs one operation and returns its reply.
func (v *View) call(ctx context.Context, start bool, op wire.Op, fds ...int) (r wire.Reply, err error) {
	err = v.exchange(ctx, start, func(c *wire.Conn) (err error) {
		defer c.Close()
		r, err = ask(ctx, c, op, fds...)
		return err
	})
	return r, err
}

func ask(ctx context.Context, c *wire.Conn, op wire.Op, fds ...int) (wire.Reply, error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	var r wire.Reply
	err := c.Send(op, nil, fds...)
	if err == nil {
		var got []int
		_, got, err = c.Recv(&r)
		wire.CloseAll(got)
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if err != nil {
		return r, fmt.Errorf("ask holder: %w", err)
	}
	return r, r.Err()
}

// statusTime is how long a holder may take to say how it is. It builds nothing
// for that; only one that is stopped takes so long.
const statusTime = 10 * time.Second

// Status implements [backends.Inhabited].
func (v *View) Status(ctx context.Context) (backends.Status, error) {
	asked, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	r, err := v.call(asked, false, wire.Op{Name: wire.OpStatus})
	if errors.Is(err, io.EOF) { // it died over the question, which may be asked again
		r, err = v.call(asked, false, wire.Op{Name: wire.OpStatus})
	}
	if err == nil {
		return *r.Status, nil
	}
	if asked.Err() != nil && ctx.Err() == nil {
		return backends.Status{}, fmt.Errorf("the holder of %s does not answer; it may be stopped: netsandbox discard %[1]s --yes ends it", v.spec.Name)
	}
	if !errors.Is(err, errNoHolder) {
		return backends.Status{}, err
	}
	// The twin lived by the holder's descriptors alone.
	rec, err := v.dir().Load()
	if errors.Is(err, fs.ErrNotExist) {
		return backends.Status{}, nil
	}
	return backends.Status{TwinLost: true, Mode: rec.Mode}, err
}

// Stop implements [backends.Inhabited].
func (v *View) Stop(ctx context.Context) error {
	_, err := v.call(ctx, false, wire.Op{Name: wire.OpStop})
	if errors.Is(err, errNoHolder) {
		return nil
	}
	return err
}

// Freeze implements [backends.Inhabited]. The view is frozen for as long as the
// connection to the holder lives, so a caller that dies leaves nothing frozen.
func (v *View) Freeze(ctx context.Context) (func() error, error) {
	thaw := func() error { return nil }
	err := v.exchange(ctx, false, func(c *wire.Conn) error {
		if _, err := ask(ctx, c, wire.Op{Name: wire.OpFreeze}); err != nil {
			return errors.Join(err, c.Close())
		}
		thaw = c.Close
		return nil
	})
	if errors.Is(err, errNoHolder) { // nothing runs
		return thaw, nil
	}
	if err != nil {
		return nil, err
	}
	return thaw, nil
}

// Discard implements [backends.Layer].
func (v *View) Discard(ctx context.Context) error {
	if err := v.end(ctx); err != nil {
		return err
	}
	return erase.Tree(filepath.Dir(v.spec.Dir), filepath.Base(v.spec.Dir))
}

// quitTime is how long a holder is asked to quit. One that is stopped never
// answers; it is killed then.
const quitTime = 5 * time.Second

// end ends holder and view, whichever still lives, and removes their groups.
func (v *View) end(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, quitTime)
	defer cancel()
	_, err := v.call(ask, false, wire.Op{Name: wire.OpQuit})
	if err == nil {
		if err := v.released(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
	// One that was stopped, before its answer or between that and its end, is killed.
	rec, err := v.dir().Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	g, err := cgroup.Open(v.spec.ID)
	if err != nil {
		return err
	}
	return errors.Join(holder.End(g, rec), sweepLanes())
}

// released waits until the holder has given up the environment's lock.
func (v *View) released(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for v.dir().Held(envdir.HolderLock) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for holder to end: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

var (
	_ backends.View  = (*View)(nil)
	_ backends.Dated = (*View)(nil)
)
