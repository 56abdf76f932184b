package hostfiles

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Snapshot implements [backends.Host]. Each step's origin becomes what the host
// has now, with its identity and times, which equals the plan's origin or is
// refused.
func (h *Host) Snapshot(ctx context.Context, txn string, cs []change.Change) ([]backends.Step, error) {
	for _, c := range cs {
		if err := check(c); err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
	}
	for _, err := range checkNames(cs) {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	steps := arrange(cs)
	if err := carry(steps); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	t, err := openTree(h.root)
	if err != nil {
		return nil, err
	}
	defer t.close()
	places := newAnchors(t, h.base)
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := t.snapshot(&steps[i], txn, places); err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", steps[i].Change.Path, err)
		}
	}
	dirs := map[string]change.Path{}
	for _, s := range steps {
		if s.Place.Within == "" {
			dirs[s.Place.Name] = s.Place.Dir
		}
	}
	for i := range steps {
		if p := &steps[i].Place; p.Within != "" {
			p.Dir = dirs[p.Within]
		}
	}
	return steps, nil
}

// check refuses a change that no code below could carry out.
func check(c change.Change) error {
	if c.Kind != change.KindFile || !valid(c.Path) {
		return fmt.Errorf("change %q of %s: not an absolute, clean path", c.Kind, c.Path)
	}
	if c.Old == nil && c.New == nil {
		return fmt.Errorf("change of %s: nothing before and nothing after", c.Path)
	}
	for _, e := range []*change.Entry{c.Old, c.New} {
		if e == nil {
			continue
		}
		switch e.Type {
		case change.Regular, change.Directory, change.Symlink, change.Fifo:
		default:
			return fmt.Errorf("change of %s: %w: file type %q", c.Path, errors.ErrUnsupported, e.Type)
		}
	}
	if c.Path == "/" && actOf(c) != actInPlace {
		return fmt.Errorf("change of /: %w", errors.ErrUnsupported)
	}
	return nil
}

func (t *tree) snapshot(s *backends.Step, txn string, places *anchors) error {
	c := &s.Change
	now, err := t.observe(c.Path, c.Old)
	if err != nil {
		return err
	}
	if !now.Same(c.Old) {
		return backends.ErrHostChanged
	}
	if now != nil {
		c.Old, s.Place.Original = now, now.ID
	}
	if now != nil && now.Links > 1 {
		if s.Place.Handle, err = t.handle(c.Path); err != nil {
			return err
		}
	}
	if s.Place.Name == "" { // in place
		s.Place.DirBefore = now.MTime
		return nil
	}
	if s.Place.Within != "" && c.Old == nil {
		return nil // its parent is yet to be made
	}
	dir, _, err := t.parent(c.Path)
	if errors.Is(err, unix.ELOOP) || err != nil && absent(err) {
		return fmt.Errorf("%w: no such directory above it (%w)", backends.ErrHostChanged, err)
	}
	if err != nil {
		return err
	}
	up, err := stat(dir, "")
	if err != nil {
		return err
	}
	s.Place.Parent = up.identity()
	if s.Place.Within != "" {
		return nil
	}
	s.Place.DirBefore = up.mtime
	parent, _ := split(c.Path)
	s.Place.Dir, err = places.hiddenDir(txn, parent)
	return err
}
