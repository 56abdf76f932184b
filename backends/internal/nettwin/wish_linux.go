package nettwin

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// wish is one message to send to the twin, and what it says in words.
type wish struct {
	typ   uint16
	flags int
	msg   []byte
	text  func() string
	err   error // why it was refused the last time
}

// replay sends lists of wishes in rounds, as they need each other. What is refused
// to the end becomes a note: the twin is then poorer than the host and says so.
func (r *replica) replay(lists ...[]wish) (refused []wish, err error) {
	if err := r.rounds(lists); err != nil || done(lists) {
		return nil, err
	}
	props, err := r.prop(lists)
	if err != nil {
		return nil, err
	}
	if err := r.rounds(lists); err != nil {
		return nil, err
	}
	refused = slices.Concat(lists...)
	for _, w := range refused {
		r.note("%s is not in the twin: %v", w.text(), w.err)
	}
	return refused, remove(r.conn, unix.RTM_DELROUTE, props, "route")
}

func done(lists [][]wish) bool { return len(slices.Concat(lists...)) == 0 }

// rounds leaves in lists what is refused to the end: after three of them at most,
// and a fourth for what the third made possible.
func (r *replica) rounds(lists [][]wish) error {
	for range 4 {
		for i, list := range lists {
			again, err := r.try(list)
			if err != nil {
				return err
			}
			lists[i] = again
		}
		if done(lists) {
			break
		}
	}
	return nil
}

// prop makes the gateways of refused routes reachable, and returns the routes to
// take away again. The kernel looks at a gateway when a route is made and never
// after: on the host its link may have been given another address since.
func (r *replica) prop(lists [][]wish) ([][]byte, error) {
	var props [][]byte
	for _, w := range slices.Concat(lists...) {
		gateways := rtnl.Gateways
		if w.typ == unix.RTM_NEWNEXTHOP {
			gateways = rtnl.NexthopGateways
		}
		for _, g := range gateways(w.msg) {
			err := r.conn.Do(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, g.Link())
			var refused unix.Errno
			switch {
			case err == nil:
				props = append(props, g.Link())
			case !errors.As(err, &refused):
				return props, fmt.Errorf("add route to gateway %s: %w", g.Addr, err)
			}
		}
	}
	return props, nil
}

// try sends wishes of one kind and returns those that were refused.
func (r *replica) try(list []wish) ([]wish, error) {
	if len(list) == 0 {
		return nil, nil
	}
	batch := make([][]byte, len(list))
	for i, w := range list {
		batch[i] = w.msg
	}
	var again []wish
	for i, err := range r.conn.Batch(list[0].typ, list[0].flags, batch) {
		if err == nil || errors.Is(err, unix.EEXIST) {
			continue
		}
		if _, ok := errors.AsType[unix.Errno](err); !ok {
			return nil, fmt.Errorf("add %s: %w", list[i].text(), err)
		}
		list[i].err = err
		again = append(again, list[i])
	}
	return again, nil
}
