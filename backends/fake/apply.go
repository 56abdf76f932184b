package fake

import (
	"context"
	"fmt"
	"slices"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

func slot(s backends.Step) change.Path { return s.Place.Dir + "/" + change.Path(s.Place.Name) }

func number(id *change.Identity) uint64 {
	if id == nil {
		return 0
	}
	return id.Ino
}

// Stage implements [backends.Host]. The names of a wanted hard-link group become
// one object, as on a disk.
func (h *Host) Stage(_ context.Context, steps []backends.Step, wanted backends.Wanted) ([]backends.Step, error) {
	h.ready()
	steps = slices.Clone(steps)
	made := map[change.Path]object{}
	for _, others := range []bool{false, true} {
		for i := range steps {
			if e := steps[i].Change.New; e == nil || (e.Link != "") != others {
				continue
			}
			if err := h.stage(&steps[i], wanted, made); err != nil {
				return nil, err
			}
		}
	}
	return steps, nil
}

func (h *Host) stage(s *backends.Step, wanted backends.Wanted, made map[change.Path]object) error {
	p, e := s.Change.Path, s.Change.New
	o, linked := made[e.Link]
	switch {
	case e.Link != "" && !linked:
		return fmt.Errorf("stage %s: nothing is wanted at %s", p, e.Link)
	case e.Link == "" && e.Type == change.Regular:
		content, err := wanted.Open(e.SHA256)
		if err != nil {
			return fmt.Errorf("stage %s: %w", p, err)
		}
		content.Close()
	}
	return h.do("stage", p, func() {
		if !linked {
			o = h.make(*e)
		}
		made[p] = o
		h.hidden[slot(*s)], s.Place.Staged = o, &change.Identity{Ino: o.number}
	})
}

// Swap implements [backends.Host].
func (h *Host) Swap(_ context.Context, steps []backends.Step) error {
	for _, s := range steps {
		p := s.Change.Path
		here := h.objects[p].number
		if s.Change.New != nil && here == number(s.Place.Staged) {
			continue
		}
		if _, taken := h.hidden[slot(s)]; s.Change.New == nil && taken && here == 0 {
			continue
		}
		if here != number(s.Place.Original) || !h.at(p).Same(s.Change.Old) {
			return fmt.Errorf("swap %s: %w", p, backends.ErrHostChanged)
		}
		if err := h.do("swap", p, func() { h.exchange(p, slot(s)) }); err != nil {
			return err
		}
	}
	return nil
}

// exchange swaps what is at a path with what is hidden; either may be nothing.
func (h *Host) exchange(p, q change.Path) {
	a, inPlace := h.objects[p]
	b, inHiding := h.hidden[q]
	delete(h.objects, p)
	delete(h.hidden, q)
	if inPlace {
		h.hidden[q] = a
	}
	if inHiding {
		h.objects[p] = b
	}
}

// Verify implements [backends.Host].
func (h *Host) Verify(_ context.Context, steps []backends.Step) ([]backends.Leftover, error) {
	var left []backends.Leftover
	for _, s := range steps {
		if now := h.at(s.Change.Path); !now.Same(s.Change.New) {
			left = append(left, leftover(s, "something else"))
		}
	}
	return left, nil
}

func leftover(s backends.Step, found string) backends.Leftover {
	return backends.Leftover{Subject: s.Change.Path.String(), Found: found}
}

// Undo implements [backends.Host].
func (h *Host) Undo(_ context.Context, steps []backends.Step) ([]backends.Leftover, error) {
	var left []backends.Leftover
	for _, s := range slices.Backward(steps) {
		found, err := h.undo(s)
		if err != nil {
			return left, err
		}
		if found != "" {
			left = append(left, leftover(s, found))
		}
	}
	return left, nil
}

func (h *Host) undo(s backends.Step) (string, error) {
	p, kept := s.Change.Path, h.hidden[slot(s)].number
	now, there := h.objects[p]
	switch {
	case s.Change.New != nil && (s.Place.Staged == nil || kept == s.Place.Staged.Ino):
		return "", nil // never swapped, or back
	case s.Change.New == nil && kept == 0:
		return "", nil
	case s.Change.New == nil && there:
		return "something new", nil
	case s.Change.New == nil:
	case !there && s.Change.Old == nil:
		return "", nil
	case !there:
		return "nothing", nil
	case now.number == number(s.Place.Original):
		return "", nil
	case now.number != s.Place.Staged.Ino || now.entry.SHA256 != s.Change.New.SHA256:
		return "somebody else's object", nil
	}
	return "", h.do("undo", p, func() { h.exchange(p, slot(s)) })
}

// Clean implements [backends.Host].
func (h *Host) Clean(_ context.Context, steps []backends.Step, keep bool) error {
	for _, s := range steps {
		o, ok := h.hidden[slot(s)]
		if !ok || keep && o.number != number(s.Place.Staged) {
			continue
		}
		if err := h.do("clean", s.Change.Path, func() { delete(h.hidden, slot(s)) }); err != nil {
			return err
		}
	}
	return nil
}
