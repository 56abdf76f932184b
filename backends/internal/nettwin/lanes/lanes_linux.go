package lanes

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

const (
	capacity = 256         // lanes of one environment
	fresh    = time.Second // how long a lane is believed to be as it was made
)

// Lanes are the lanes of one environment.
type Lanes struct {
	host *os.File
	opt  Options
	step func() // see kernel

	mu      sync.Mutex
	closed  bool
	kernel  *kernel // nil until the first need
	claim   *claim  // nil until the first lane
	lanes   map[way.Lane]*lane
	admits  map[way.Flow]*admission
	facts   *facts
	pref    map[bool]uint32 // where the rules of a family (six) are
	clock   uint64          // of use
	hop     int             // where the search for a number goes on
	checked time.Time

	track struct {
		sync.Mutex
		*kernel
	}
}

// lane is one that was made.
type lane struct {
	way.Lane
	number uint32
	used   uint64
	open   int        // admissions
	limit  *way.Limit // why it carries nothing at present
}

// facts is what is known of the host's packet filter.
type facts struct {
	marks   []Mark
	filters []string
}

// Open prepares for lanes on the host whose network namespace is given. It looks
// at nothing and makes nothing until the first lane is asked for.
func Open(host *os.File, o Options) (*Lanes, error) {
	fd, err := unix.FcntlInt(host.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("hold the host's network namespace: %w", err)
	}
	return &Lanes{
		host: os.NewFile(uintptr(fd), "host"), opt: o, step: func() {},
		lanes: map[way.Lane]*lane{}, admits: map[way.Flow]*admission{}, pref: map[bool]uint32{},
	}, nil
}

// Lane returns the mark of packets that take a lane and makes it with the first
// call.
func (l *Lanes) Lane(w way.Lane) (uint32, error) {
	w, err := normal(w)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, err := l.lane(w)
	if err != nil {
		return 0, err
	}
	return ln.number, nil
}

func (l *Lanes) lane(w way.Lane) (*lane, error) {
	if err := l.begin(); err != nil {
		return nil, err
	}
	ln := l.lanes[w]
	if ln == nil {
		return l.make(w)
	}
	l.clock++
	ln.used = l.clock
	switch {
	case time.Since(l.checked) >= fresh:
		if err := l.ensure(); err != nil {
			return nil, err
		}
	case ln.limit != nil: // it may have gone meanwhile
		if err := errors.Join(l.repair(ln), l.settle(w.Six)); err != nil {
			return nil, err
		}
	}
	if ln.limit != nil {
		return nil, ln.limit
	}
	return ln, nil
}

// connect opens the way to the host's kernel.
func (l *Lanes) connect() error {
	if l.closed {
		return fmt.Errorf("lanes: %w", os.ErrClosed)
	}
	if l.kernel != nil {
		return nil
	}
	k, err := dial(int(l.host.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	k.step = l.step
	l.kernel = k
	return nil
}

// begin claims a block of numbers and writes that down.
func (l *Lanes) begin() error {
	if err := l.connect(); err != nil || l.claim != nil {
		return err
	}
	c, err := l.claimBlock()
	if err != nil {
		return err
	}
	l.step()
	// What an owner of the block left that died is ours to remove: a name is
	// claimed by one at a time.
	err = l.intend(c.block)
	l.step()
	if err == nil {
		_, err = l.kernel.sweep(c.block)
	}
	if err != nil {
		return errors.Join(err, c.release())
	}
	c.serve(l.opt.Owner)
	l.claim, l.checked = c, time.Now()
	return nil
}

// claimBlock takes the first block that nobody has, of those that do not clash
// with the host, or else of those that have any number that does not.
func (l *Lanes) claimBlock() (*claim, error) {
	taken, err := l.taken()
	if err != nil {
		return nil, err
	}
	for _, enough := range []int{hops, 1} {
		for b := range block(blocks) {
			if taken.free(b) < enough {
				continue
			}
			c, err := take(int(l.host.Fd()), b)
			if !errors.Is(err, unix.EADDRINUSE) {
				return c, err
			}
		}
	}
	return nil, &way.Limit{Kind: way.Load, Subject: "lanes", Reason: "every block of marks is in use on the host"}
}

// make makes a lane: fence, route, rule.
func (l *Lanes) make(w way.Lane) (*lane, error) {
	if err := l.room(w); err != nil {
		return nil, err
	}
	taken, err := l.taken()
	if err != nil {
		return nil, err
	}
	for range hops {
		n := l.claim.block.number(l.hop)
		l.hop = (l.hop + 1) % hops
		free, err := l.unused(n, w.Six, taken)
		if err != nil {
			return nil, err
		}
		if !free {
			continue
		}
		ln, err := l.lay(w, n)
		if errors.Is(err, unix.EEXIST) { // between our look and our step
			continue
		}
		return ln, err
	}
	return nil, l.limit(way.Load, w, "no mark is free on the host")
}

// lay makes the objects of a lane, or none.
func (l *Lanes) lay(w way.Lane, n uint32) (*lane, error) {
	k := l.kernel
	if err := k.addRoute(fence(n, w.Six)); err != nil {
		return nil, l.refused(w, err)
	}
	if err := k.addRoute(laneRoute(n, w)); err != nil {
		return nil, after(l.refused(w, err), k.removeRoute(fence(n, w.Six)))
	}
	l.clock++
	ln := &lane{Lane: w, number: n, used: l.clock}
	l.lanes[w] = ln
	err := l.settle(w.Six)
	if err == nil && ln.limit != nil {
		err = ln.limit
	}
	if err != nil {
		return nil, after(err, l.unmake(ln))
	}
	return ln, nil
}

// after joins an error and what its undo met. Without the latter it stays the
// limit that it may be.
func after(err, undo error) error {
	if undo == nil {
		return err
	}
	return errors.Join(err, undo)
}

// unmake removes a lane, the rule first.
func (l *Lanes) unmake(ln *lane) error {
	k := l.kernel
	delete(l.lanes, ln.Lane)
	pref, known := l.pref[ln.Six]
	if known {
		if err := k.removeRule(laneRule(pref, ln.number, ln.Six)); err != nil {
			return fmt.Errorf("remove rule of a lane: %w", err)
		}
	}
	return errors.Join(k.removeRoute(laneRoute(ln.number, ln.Lane)), k.removeRoute(fence(ln.number, ln.Six)))
}

// Close removes everything, the intent last, and gives the numbers back.
func (l *Lanes) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	var errs []error
	if l.claim != nil {
		_, err := l.kernel.sweep(l.claim.block)
		if err == nil {
			err = l.forget()
		}
		l.step()
		errs = append(errs, err, l.claim.release())
	}
	if l.kernel != nil {
		errs = append(errs, l.kernel.close())
	}
	l.track.Lock()
	defer l.track.Unlock()
	if l.track.kernel != nil {
		errs = append(errs, l.track.close())
	}
	return errors.Join(append(errs, l.host.Close())...)
}

var _ way.Keeper = (*Lanes)(nil)
