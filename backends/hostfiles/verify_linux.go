package hostfiles

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Verify implements [backends.Host]. Content is read, not guessed from times.
func (h *Host) Verify(ctx context.Context, steps []backends.Step) ([]backends.Leftover, error) {
	return h.each(ctx, steps, func(t *tree, s backends.Step) (*backends.Leftover, error) {
		now, err := t.observe(s.Change.Path, nil)
		if err != nil {
			return nil, fmt.Errorf("verify %s: %w", s.Change.Path, err)
		}
		found := t.differs(s, now)
		if found == "" {
			found, err = t.orphaned(s)
		}
		if found == "" || err != nil {
			return nil, err
		}
		return &backends.Leftover{
			Subject: s.Change.Path.String(), Found: found, Wanted: describe(s.Change.New),
		}, nil
	})
}

// each looks at every step, on all processors, and collects what was found in
// the order of the steps.
func (h *Host) each(ctx context.Context, steps []backends.Step, look func(*tree, backends.Step) (*backends.Leftover, error)) ([]backends.Leftover, error) {
	all, err := openTree(h.root)
	if err != nil {
		return nil, err
	}
	defer all.close()
	found := make([]*backends.Leftover, len(steps))
	err = all.share(len(steps), func(t *tree, i int) (err error) {
		if err = ctx.Err(); err == nil {
			found[i], err = look(t, steps[i])
		}
		return err
	})
	var left []backends.Leftover
	for _, l := range found {
		if l != nil {
			left = append(left, *l)
		}
	}
	return left, err
}

// differs says what is at the target instead of what the step wants.
func (t *tree) differs(s backends.Step, now *change.Entry) string {
	id := s.Place.Staged
	if actOf(s.Change) == actInPlace {
		id = s.Place.Original
	}
	switch want := s.Change.New; {
	case !now.Same(want):
		return unlike(now, want)
	case want != nil && (id == nil || now.ID.Ino != id.Ino):
		return "an equal object that is not the one put there"
	}
	return ""
}

// orphaned says why what a step took away has no directory to come back to. That
// nothing is at its path is true of any other directory, too.
func (t *tree) orphaned(s backends.Step) (string, error) {
	if s.Change.New != nil || s.Place.Within != "" || s.Place.Parent == nil {
		return "", nil
	}
	dir, _, err := t.parent(s.Change.Path)
	switch {
	case absent(err):
		return "no directory is above it any more", nil
	case errors.Is(err, unix.ELOOP):
		return "a directory above it became a symlink", nil
	case err != nil:
		return "", fmt.Errorf("verify %s: %w", s.Change.Path, err)
	}
	up, err := t.above(dir)
	if err != nil {
		return "", fmt.Errorf("verify %s: %w", s.Change.Path, err)
	}
	if up.ino != s.Place.Parent.Ino {
		return "the directory above it is another one", nil
	}
	return "", nil
}

// Originals compares the exchanged originals with what the snapshot saw. They
// are out of every program's reach, but for one that had them open before.
func (h *Host) Originals(ctx context.Context, steps []backends.Step) ([]backends.Leftover, error) {
	all := tops(steps)
	return h.each(ctx, steps, func(t *tree, s backends.Step) (*backends.Leftover, error) {
		if s.Change.Old == nil || s.Change.Old.Type != change.Regular {
			return nil, nil
		}
		l, err := t.rewritten(s, all)
		if err != nil {
			err = fmt.Errorf("verify original of %s: %w", s.Change.Path, err)
		}
		return l, err
	})
}

func (t *tree) rewritten(s backends.Step, tops map[string]change.Path) (*backends.Leftover, error) {
	at := slotOf(s, tops)
	old := s.Change.Old
	was := &node{fmt: unix.S_IFREG, size: old.Size, held: old.Size}
	if old.Sparse {
		was.held = 0
	}
	var n *node
	var sum string
	hidden, err := t.place(s.Place.Dir)
	if err == nil {
		n, sum, err = t.read(hidden, at, was)
	}
	where := join(s.Place.Dir, at)
	l := &backends.Leftover{
		Subject: s.Change.Path.String(), Wanted: describe(old),
		Fix: fmt.Sprintf("diff -- %s %s", quote(where), quote(s.Change.Path)),
	}
	switch {
	case absent(err):
		l.Found, l.Fix = "its original is no longer at "+where.String(), ""
		l.Missing, err = restorable(hidden, s)
		return l, err
	case err != nil:
		return nil, err
	case sum == old.SHA256:
		return nil, nil
	}
	l.Found = "its original was written through an old descriptor"
	if who := writers(n); who != "" {
		l.Found += " of " + who
	}
	return l, nil
}
