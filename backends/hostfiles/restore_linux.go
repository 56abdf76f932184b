package hostfiles

import (
	"archive/tar"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Restore makes originals that are no longer in their slots anew from the
// archive in dir, and returns the steps with their new identity. Where nothing is
// missing it changes nothing. This is the one part of an undo that needs space.
func (h *Host) Restore(ctx context.Context, steps []backends.Step, dir string) ([]backends.Step, error) {
	t, err := openTree(h.root)
	if err != nil {
		return nil, err
	}
	defer t.close()
	steps = slices.Clone(steps)
	r := &restorer{
		tree: t, steps: steps, missing: map[string]int{}, tops: tops(steps), groups: map[change.Identity][]backends.Step{},
	}
	if err := r.search(); err != nil || len(r.missing) == 0 {
		return steps, err
	}
	f, err := os.Open(filepath.Join(dir, archiveName))
	if err != nil {
		return steps, err
	}
	defer f.Close()
	if err := r.unpack(ctx, tar.NewReader(f)); err != nil {
		return steps, fmt.Errorf("unpack %s: %w", f.Name(), err)
	}
	return steps, r.settle()
}

// restorer rebuilds displaced originals in their hidden directories.
type restorer struct {
	*tree
	steps   []backends.Step
	missing map[string]int // index of each step that lost its original, by Name
	tops    map[string]change.Path
	groups  map[change.Identity][]backends.Step // missing ones that were one file
}

func (r *restorer) search() error {
	miss := make([]bool, len(r.steps))
	err := r.share(len(r.steps), func(t *tree, i int) (err error) {
		miss[i], err = (&undoer{tree: t}).isMissing(r.steps[i])
		return err
	})
	for i, s := range r.steps {
		if miss[i] {
			r.missing[s.Place.Name] = i
		}
	}
	return err
}

// unfinished is a slot's name until everything in it is durable: a slot holds a
// whole original or nothing.
func unfinished(name string) string { return "restoring-" + name }

// isMissing reports a step whose target is ours, or empty, while the original is
// no longer in its slot.
func (u *undoer) isMissing(s backends.Step) (bool, error) {
	if s.Change.Old == nil || s.Place.Within != "" || actOf(s.Change) == actInPlace {
		return false, nil
	}
	if s.Change.New != nil && s.Place.Staged == nil {
		return false, nil
	}
	p, err := u.look(s)
	if err != nil || p.lost != "" || p.slot != nil {
		return false, err
	}
	if s.Change.New == nil {
		return p.at == nil, nil
	}
	return p.at.is(s.Place.Staged, p.dev), nil
}

// fresh makes room for one original.
func (r *restorer) fresh(s backends.Step) error {
	if err := r.ensurePlace(s.Place.Dir); err != nil {
		return err
	}
	hidden, err := r.place(s.Place.Dir)
	if err != nil {
		return err
	}
	return removeAll(hidden, unfinished(s.Place.Name))
}

func (r *restorer) where(s backends.Step) (int, string, error) {
	hidden, err := r.place(s.Place.Dir)
	if s.Place.Within == "" {
		return hidden, unfinished(s.Place.Name), err
	}
	return hidden, unfinished(inside(s, r.tops[s.Place.Within])), err
}

// settle makes the originals durable and gives them their names.
func (r *restorer) settle() error {
	if err := r.flushPlaces(r.steps); err != nil {
		return err
	}
	for name, i := range r.missing {
		s := &r.steps[i]
		hidden, err := r.place(s.Place.Dir)
		if err != nil {
			return err
		}
		err = durable("restore "+name, func() error {
			return renameat2(hidden, unfinished(name), hidden, name, unix.RENAME_NOREPLACE)
		})
		if err != nil {
			return err
		}
		n, err := stat(hidden, name)
		if err != nil {
			return err
		}
		s.Place.Original = n.identity()
	}
	return nil
}
