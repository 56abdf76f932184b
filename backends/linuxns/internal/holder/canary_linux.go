package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/canary"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/canary/world"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// canaries are the throw-away views that run now. Those over the merged mounts
// of the view keep its overlays alive, so they must have ended before the same
// uppers are mounted again.
type canaries struct {
	mu     sync.Mutex
	next   int
	ending map[int]context.CancelFunc // of candidates
	over   sync.WaitGroup             // candidates that still run

	networks world.Networks
}

// enter registers a candidate; leave must be called when nothing of it is left.
// The caller holds the holder's lock, so no candidate enters while they are ended.
func (c *canaries) enter(cancel context.CancelFunc) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending == nil {
		c.ending = map[int]context.CancelFunc{}
	}
	c.next++
	id := c.next
	c.ending[id] = cancel
	c.over.Add(1)
	return func() {
		c.mu.Lock()
		delete(c.ending, id)
		c.mu.Unlock()
		c.over.Done()
	}
}

// any reports whether a candidate runs.
func (c *canaries) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ending) > 0
}

// end ends every candidate and waits for that. The caller holds the holder's lock.
func (c *canaries) end() {
	c.mu.Lock()
	for _, cancel := range c.ending {
		cancel()
	}
	c.mu.Unlock()
	c.over.Wait()
}

// canary runs one probe for a client, until it is done or the client is gone.
// It does not hold the holder's lock while the probe runs.
func (h *Holder) canary(c *wire.Conn, who wire.Caller, where backends.Where, packed []byte, r *wire.Reply) error {
	p, err := canary.Unpack(packed)
	if err != nil {
		return err
	}
	if who.UID != 0 && who.UID != p.UID {
		return fmt.Errorf("uid %d cannot run a canary as uid %d", who.UID, p.UID)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		c.HungUp()
		cancel()
	}()
	env, leave, err := h.world(ctx, where, cancel)
	if err != nil {
		return err
	}
	defer leave()
	out, err := env.Run(ctx, where, p)
	if err != nil {
		return err
	}
	if where == backends.InJail && !out.OK() {
		out.Unproven = append(out.Unproven, h.strangers()...)
	}
	r.Outcome = &out
	return nil
}

// strangers names the packet filters of the host to which a canary is somebody
// else than its circuit's user: in its user namespace ids are others.
func (h *Holder) strangers() (lines []string) {
	if !h.mode.UserNS() {
		return nil
	}
	seen, err := h.firewall.look()
	if err != nil {
		return nil // and the answer stands: there need not be any such filter
	}
	for _, chain := range seen.Owners {
		lines = append(lines, chain+": it asks who sends, and a canary is nobody that the host knows")
	}
	return lines
}

// pings reports whether the host gives ping sockets to one of a probe's groups, as
// the host's kernel counts them (ping_init_sock in net/ipv4/ping.c).
func (h *Holder) pings(p backends.Probe) (given bool, err error) {
	var low, high int64
	err = netns.Do(int(h.host.Fd()), func() error {
		b, err := os.ReadFile("/proc/sys/net/ipv4/ping_group_range")
		if err == nil {
			_, err = fmt.Sscan(string(b), &low, &high)
		}
		return err
	})
	for _, g := range append(slices.Clone(p.Groups), p.GID) {
		id := int64(g) + int64(h.mode.Shift)
		given = given || low <= id && id <= high
	}
	return given, err
}

// world gathers what a canary's view is made from. A candidate needs a live
// view to look at, and makes one.
func (h *Holder) world(ctx context.Context, where backends.Where, cancel context.CancelFunc) (env world.Env, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	env = world.Env{
		Dir: h.dir, StateRoot: h.spec.StateRoot, Hide: h.spec.Hide, Secrets: h.spec.Secrets, Mode: h.mode,
		User: h.canaryUser, Net: h.net, Exe: h.exe, Silent: h.silent,
		Networks: &h.canaries.networks,
		Twin:     h.twinOptions(),
		Ensure:   h.ways.Ensure,
		Pings:    h.pings,
		Cgroup:   h.canaryGroup,
	}
	if where != backends.InCandidate {
		return env, func() {}, nil
	}
	// What the inside did to its network is part of what is tried, and gone with a
	// twin that was lost.
	if h.twinLost() {
		return env, nil, fmt.Errorf("%w: %s", backends.ErrTwinLost, h.resetNetwork())
	}
	env.View = h.twin
	v, err := h.look(ctx)
	if err != nil {
		return env, nil, err
	}
	env.Merged = v.ns
	return env, h.canaries.enter(cancel), nil
}

// canaryGroup makes a cgroup for one canary.
func (h *Holder) canaryGroup() (fd int, remove func() error, err error) {
	h.canaries.mu.Lock()
	h.canaries.next++
	name := path.Join(canaryGroup, strconv.Itoa(h.canaries.next))
	h.canaries.mu.Unlock()
	// The limits are those of all canaries together.
	all, err := h.group.View(canaryGroup, 0)
	if err != nil {
		return -1, nil, err
	}
	if all < 0 {
		return -1, func() error { return nil }, nil
	}
	unix.Close(all)
	if fd, err = h.group.View(name, 0); err != nil {
		return -1, nil, err
	}
	return fd, func() error {
		return errors.Join(unix.Close(fd), h.group.Kill(name, patience), h.group.Remove(name))
	}, nil
}
