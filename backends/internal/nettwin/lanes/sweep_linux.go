package lanes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// tagged is what carries our tag: rules first, as they are removed.
type tagged struct {
	rules  []rule
	routes []route
}

// find lists what is ours, of all blocks.
func (k *kernel) find() (map[block]*tagged, error) {
	found := map[block]*tagged{}
	at := func(b block) *tagged {
		if found[b] == nil {
			found[b] = &tagged{}
		}
		return found[b]
	}
	for _, six := range []bool{false, true} {
		rules, err := k.rules(six)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			if b, ok := r.ours(); ok {
				at(b).rules = append(at(b).rules, r)
			}
		}
		routes, err := k.routes(six, 0)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if b, ok := r.ours(); ok {
				at(b).routes = append(at(b).routes, r)
			}
		}
	}
	return found, nil
}

// sweep removes what is ours of a block; the caller has its name. The order is
// that of making, backwards: rules, ways, fences.
func (k *kernel) sweep(b block) ([]Object, error) {
	found, err := k.find()
	if err != nil || found[b] == nil {
		return nil, err
	}
	t := found[b]
	var gone []Object
	for _, r := range t.rules {
		if err := k.removeRule(r); err != nil {
			return gone, fmt.Errorf("remove %s: %w", ruleText(r), err)
		}
		gone = append(gone, Object{Text: ruleText(r), Six: r.six, Block: int(b)})
	}
	slices.SortStableFunc(t.routes, func(a, b route) int { return int(a.typ) - int(b.typ) }) // unicast is the least
	for _, r := range t.routes {
		if err := k.removeRoute(r); err != nil {
			return gone, fmt.Errorf("remove %s: %w", k.routeText(r), err)
		}
		gone = append(gone, Object{Text: k.routeText(r), Six: r.six, Block: int(b)})
	}
	return gone, nil
}

// Sweep removes the routes and rules of owners that are gone and returns what it
// removed. Those of a living owner it does not touch.
func Sweep(host int) ([]Object, error) {
	k, err := dial(host)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	return k.sweepDead(host)
}

// A Sweeper does as [Sweep] again and again, without making a socket each time:
// where nothing is to be done it takes some ten microseconds.
type Sweeper struct {
	host int
	mu   sync.Mutex
	k    *kernel
}

// NewSweeper opens one for the host whose network namespace is given, which stays
// the caller's and must outlive it.
func NewSweeper(host *os.File) (*Sweeper, error) {
	k, err := dial(int(host.Fd()))
	if err != nil {
		return nil, err
	}
	return &Sweeper{host: int(host.Fd()), k: k}, nil
}

// Sweep removes what [Sweep] does.
func (s *Sweeper) Sweep() ([]Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.k.sweepDead(s.host)
}

// Close gives the socket up.
func (s *Sweeper) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.k.Close()
}

func (k *kernel) sweepDead(host int) (gone []Object, err error) {
	found, err := k.find()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	dead, err := takeDead(host, sorted(found))
	for _, c := range dead {
		// It is listed again: what was seen before the name was ours may be of an
		// owner that came and went.
		some, serr := k.sweep(c.block)
		gone = append(gone, some...)
		err = errors.Join(err, serr, c.release())
	}
	return gone, err
}

// Find lists what carries our tag, with what is known of its owners. To learn
// whether one lives it tries to take its name, for a moment.
func Find(host int) ([]Object, error) {
	k, err := dial(host)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	found, err := k.find()
	if err != nil {
		return nil, err
	}
	var all []Object
	for _, b := range sorted(found) {
		o := Object{Block: int(b)}
		c, err := take(host, b)
		switch {
		case errors.Is(err, unix.EADDRINUSE):
			o.Alive = true
			o.PID, o.Owner = holder(host, b)
		case err != nil:
			return nil, err
		default:
			if err := c.release(); err != nil {
				return nil, err
			}
		}
		for _, r := range found[b].rules {
			o.Text, o.Six = ruleText(r), r.six
			all = append(all, o)
		}
		for _, r := range found[b].routes {
			o.Text, o.Six = k.routeText(r), r.six
			all = append(all, o)
		}
	}
	return all, nil
}

func sorted(found map[block]*tagged) []block {
	var bs []block
	for b := range found {
		bs = append(bs, b)
	}
	slices.Sort(bs)
	return bs
}

func ruleText(r rule) string {
	s := fmt.Sprintf("rule pref %d ", r.pref)
	if r.mark.Mask != 0 {
		s += fmt.Sprintf("fwmark %#x/%#x", r.mark.Value, r.mark.Mask)
	} else {
		s += fmt.Sprintf("from %s to %s ipproto %d sport %d dport %d", r.src.Addr(), r.dst.Addr(), r.ipproto, r.sport, r.dport)
	}
	return fmt.Sprintf("%s lookup %d proto %d", s, r.table, r.protocol)
}

func (k *kernel) routeText(r route) string {
	if r.typ == unix.RTN_UNREACHABLE {
		return fmt.Sprintf("route unreachable default table %d metric %d proto %d", r.table, r.metric, r.protocol)
	}
	s := "route default "
	if r.via.IsValid() {
		s += fmt.Sprintf("via %s ", r.via)
	}
	return fmt.Sprintf("%sdev %s table %d proto %d", s, k.linkName(r.index), r.table, r.protocol)
}
