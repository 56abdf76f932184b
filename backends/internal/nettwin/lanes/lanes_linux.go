package lanes

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/conntrack"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

const (
	capacity = 256         // lanes of one environment
	fresh    = time.Second // how long a lane is believed to be as it was made
	// grace is how long a mark that was handed out may be without a socket. It also
	// bounds how fast a view that tries one gateway after the other can have the
	// host's routing changed.
	grace = 5 * time.Second
)

// Lanes are the lanes of one environment.
type Lanes struct {
	host *os.File
	opt  Options
	step func()           // see kernel
	now  func() time.Time // tests move it

	mu      sync.Mutex
	closed  bool
	kernel  *kernel // nil until the first need
	claim   *claim  // nil until the first lane
	lanes   map[way.Lane]*lane
	admits  map[way.Flow]*admission
	facts   *facts
	pref    map[bool]uint32 // where the rules of a family (six) are
	hop     int             // where the search for a number goes on
	checked time.Time

	track struct { // connection tracking, apart: it waits for no lane
		sync.Mutex
		*conntrack.Conn
		closed bool
	}
}

// lane is one that was made.
type lane struct {
	way.Lane
	number uint32
	used   time.Time
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
		host: os.NewFile(uintptr(fd), "host"), opt: o, step: func() {}, now: time.Now,
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
	ln.used = l.now()
	switch {
	case ln.used.Sub(l.checked) >= fresh:
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
	k, err := dial(int(l.host.Fd()))
	if err != nil {
		return err
	}
	k.step = l.step
	l.kernel = k
	return nil
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
		errs = append(errs, l.kernel.Close())
	}
	l.track.Lock()
	defer l.track.Unlock()
	l.track.closed = true
	if l.track.Conn != nil {
		errs = append(errs, l.track.Close())
	}
	return errors.Join(append(errs, l.host.Close())...)
}

var _ way.Keeper = (*Lanes)(nil)
