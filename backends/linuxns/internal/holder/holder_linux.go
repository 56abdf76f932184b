package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/cgroup"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/idle"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// Holder keeps one environment.
type Holder struct {
	spec  backends.Spec
	dir   envdir.Dir
	mode  harden.Mode
	group *cgroup.Group
	held  *os.File // the environment's lock
	exe   int      // the program, for PID 1
	// Namespaces, as descriptors; -1 where the mode has none.
	user, canaryUser, net int

	exec, ops, asks *wire.Listener
	asking          sync.Mutex // a question from inside is being answered

	// mu is the one lock of build, rebuild, layer edits and canaries.
	mu   sync.Mutex
	view *view
	run  int // a detached /run to go on with, or -1
	// frozen counts clients that want the view to stand still.
	frozen int
	thawed *sync.Cond
	twin   *nettwin.Twin
	host   *os.File // the host's network namespace
	// firewall knows the host's packet filters.
	firewall *firewall
	ways     *lanes.Lanes // what twins make the host do
	sweeper  *lanes.Sweeper
	dates    dates
	// builder is started by the first build.
	builder *builder.Thread
	notes   []string // of the choice of mode
	built   []string // of the last build
	// silent lists mounts that hang whoever looks at them.
	silent []string
	rec    envdir.Holder
	// recorded is what of rec is on the disk.
	recorded envdir.Holder

	sessions sessions
	canaries canaries
	idle     *idle.Timer

	tidying     sync.Mutex // of the next two
	tidyPlanned bool
	tidied      time.Time
}

func (h *Holder) listen() error {
	var err error
	// The directory is closed to others; the mode of the socket lets the owner in
	// where an administrator opens the way.
	if h.exec, err = wire.Listen(h.spec.Dir, envdir.ExecSocket, 0o666); err != nil {
		return err
	}
	h.ops, err = wire.Listen(h.spec.Dir, envdir.OpSocket, 0o600)
	return err
}

// serve hands out until told to quit.
func (h *Holder) serve() {
	quit := make(chan struct{}, 1)
	go accept(h.exec, h.command)
	go accept(h.ops, func(c *wire.Conn) {
		if h.operate(c) {
			select {
			case quit <- struct{}{}:
			default: // somebody else asked too
			}
		}
	})
	<-quit
}

// accept serves each client on a goroutine of its own.
func accept(l *wire.Listener, serve func(*wire.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil { // out of descriptors, until some client ends
			fmt.Fprintln(os.Stderr, "holder:", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go serve(c)
	}
}

// command passes one client on to PID 1, with the credentials that the kernel
// recorded for it.
func (h *Holder) command(c *wire.Conn) {
	who, err := c.Peer()
	if err == nil && who.UID != h.spec.UID {
		err = fmt.Errorf("environment %s belongs to uid %d", h.spec.Name, h.spec.UID)
	}
	if err == nil {
		err = h.hand(c, who)
	}
	if err != nil {
		refuse(c, err)
	}
}

// refuse answers a client that PID 1 never sees. What it sends is taken first:
// closing a socket over unread data would reset the connection and lose the
// answer.
func refuse(c *wire.Conn, err error) {
	defer c.Close()
	if c.SetDeadline(time.Now().Add(patience)) != nil {
		return
	}
	var r wire.Start
	_, fds, rerr := c.Recv(&r)
	wire.CloseAll(fds)
	if rerr == nil {
		c.Send(wire.Event{Status: 125, Error: err.Error()}, nil)
	}
}

func (h *Holder) hand(c *wire.Conn, who wire.Caller) error {
	swept := h.sweep()
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.frozen > 0 {
		h.thawed.Wait()
	}
	was := h.view
	v, err := h.ensure(context.Background(), true)
	if err != nil {
		return err
	}
	<-swept
	if err = h.pass(v, c, who); err != nil {
		// PID 1 is on its way out, and has not got the client.
		if err := h.stop(); err != nil {
			return err
		}
		if v, err = h.build(context.Background()); err == nil {
			err = h.pass(v, c, who)
		}
		if err != nil {
			return err
		}
	}
	// Should the view die before it accepts the command, the client reads the end
	// of its connection and tries once more.
	h.dates.done = false
	h.sessions.add(v, c, h.ended)
	h.tidySoon()
	if v == was {
		return nil
	}
	// After the hand-over: a command is waiting for it, and until then the older
	// record makes a later holder and a comparison more careful, not less.
	if err := h.record(); err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
	}
	return nil
}

// pass gives a client's connection to PID 1.
func (h *Holder) pass(v *view, c *wire.Conn, who wire.Caller) error {
	var sent error
	if err := c.Control(func(fd int) { sent = v.conn.Send(who, nil, fd) }); err != nil {
		return err
	}
	if sent != nil {
		return fmt.Errorf("reach the view's init: %w", sent)
	}
	return nil
}

// ended ends a view that its last command has left with nothing alive in it.
// The next command begins with a new one anyway, and to unmount an overlay takes
// as long as syncfs(2) of everything on the filesystem of its upper: better now
// than when somebody waits.
func (h *Holder) ended() {
	h.idle.Touch()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.view == nil || h.frozen > 0 {
		return
	}
	busy, err := h.busy()
	switch {
	case err == nil && busy:
		h.dateBeside()
	case err == nil:
		err = errors.Join(h.stop(), h.record())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
	}
}

// record stores what changed about the holder. Where nothing did, as with most
// commands in a live view, it does without: making and renaming a file is more
// than half of what a command costs the holder.
func (h *Holder) record() error {
	if reflect.DeepEqual(h.rec, h.recorded) {
		return nil
	}
	if err := h.dir.Store(h.rec); err != nil {
		return err
	}
	h.recorded = h.rec
	return nil
}

// operate serves one connection of the workflow and reports whether it asked
// the holder to end.
func (h *Holder) operate(c *wire.Conn) (quit bool) {
	defer h.idle.Touch()
	defer c.Close()
	who, err := c.Peer()
	if err != nil {
		return false
	}
	var op wire.Op
	body, fds, err := c.Recv(&op)
	if err != nil {
		return false
	}
	defer wire.CloseAll(fds)
	var r wire.Reply
	switch {
	case who.UID != 0 && who.UID != h.spec.UID:
		err = errors.New("not the environment's owner")
	case op.Name == wire.OpCanary: // takes the lock for the start only
		err = h.canary(c, who, op.Where, body, &r)
	case op.Name == wire.OpFreeze:
		if err = h.freeze(c); err == nil {
			return false // answered already
		}
	default:
		err = h.dispatch(op, fds, &r)
	}
	r.SetError(err)
	c.Send(r, nil)
	if op.Name == wire.OpBuild { // it was to see whether it can be done
		h.ended()
	}
	return op.Name == wire.OpQuit && r.Error == ""
}
