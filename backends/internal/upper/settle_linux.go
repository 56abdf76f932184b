package upper

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// Settle drops the entries of paths that were applied: the host has them now,
// and the view is to show the host's. Unlike [Remove] it takes each path alone: what
// else lies in a directory that was applied stays. The view must be unmounted.
func Settle(dir string, paths []change.Path) error {
	inner := slices.Sorted(slices.Values(paths))
	slices.Reverse(inner) // children before their directory
	var known []origin
	err := edit(dir, func(ls []*layer) error {
		for _, p := range inner {
			o, err := settlePath(ls, p)
			if err != nil {
				return fmt.Errorf("settle %s: %w", p, err)
			}
			known = append(known, o)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(replace(dir, known), unmarkStaged(dir, paths))
}

// settlePath settles one path and returns what is known of it from now on: the
// host's present object as a certain origin where a directory stays in the
// layer because of what else is in it, otherwise nothing.
func settlePath(ls []*layer, p change.Path) (origin, error) {
	forgotten := origin{Path: p, Mark: forgetOne}
	l, rel, err := locate(ls, p)
	if err != nil {
		return forgotten, err
	}
	if rel == "." {
		return settledOrigin(p, l.lower, l.lower < 0)
	}
	t := &trail{}
	defer t.close()
	name, err := t.follow(l, rel, false)
	if err != nil || name == "" {
		return forgotten, err
	}
	at := t.last()
	// A directory that was made anew hides what the host has in it. What the plan
	// deleted there is gone from the host; the rest stays hidden name by name.
	if err := at.clearOpaque(""); err != nil {
		return forgotten, err
	}
	u, err := lookup(at.up, name)
	if err != nil {
		return forgotten, err
	}
	if u.isDir() {
		return settleDir(t, p, name)
	}
	if u != nil {
		if err := unix.Unlinkat(at.up, name, 0); err != nil {
			return forgotten, fmt.Errorf("remove %s: %w", change.Escape(name), err)
		}
	}
	return forgotten, t.prune()
}

func settleDir(t *trail, p change.Path, name string) (origin, error) {
	forgotten := origin{Path: p, Mark: forgetOne}
	next, err := t.last().down(name, false)
	if err != nil || next == nil {
		return forgotten, err
	}
	t.steps = append(t.steps, next)
	if err := next.clearOpaque(""); err != nil {
		return forgotten, err
	}
	parent := t.steps[len(t.steps)-2]
	if err := t.prune(); err != nil {
		return forgotten, err
	}
	left, err := lookup(parent.up, name)
	if err != nil {
		return forgotten, err
	}
	return settledOrigin(p, next.lo, left == nil || next.lo < 0)
}

// settledOrigin takes the host's directory as it is now for a certain origin.
func settledOrigin(p change.Path, lower int, gone bool) (origin, error) {
	if gone {
		return origin{Path: p, Mark: forgetOne}, nil
	}
	n, err := lookup(lower, ".")
	if err != nil {
		return origin{}, err
	}
	e, err := n.entry()
	return origin{Path: p, Old: e, Certain: true}, err
}

// replace writes what is known of settled paths from now on. What one of them hid
// of the host's is gone from there; should it come back, as it does with a
// rollback, nobody deletes it any more.
func replace(dir string, known []origin) error {
	l, err := openOrigins(dir)
	if err != nil {
		return err
	}
	for _, o := range known {
		l.add(o)
		if l.cover[o.Path] {
			l.add(origin{Path: o.Path, Mark: uncovers})
		}
	}
	return errors.Join(l.flush(), l.close())
}
