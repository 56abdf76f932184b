package hostfiles

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// stageNames makes the other names of wanted hard-link groups. Each is staged
// and put in place by itself, like a file of its own, and none is written twice.
func (g *stager) stageNames(ctx context.Context, steps []backends.Step) error {
	first := map[change.Path]*backends.Step{}
	for i := range steps {
		if c := steps[i].Change; c.New != nil && c.New.Type == change.Regular && c.New.Link == "" {
			first[c.Path] = &steps[i]
		}
	}
	// Two, because each keeps one directory open.
	from := newStager(g.tree, g.tops)
	defer from.leave()
	for i := range steps {
		s := &steps[i]
		if s.Change.New == nil || s.Change.New.Link == "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := g.stageName(s, first[s.Change.New.Link], from); err != nil {
			return fmt.Errorf("%s: %w", s.Change.Path, err)
		}
	}
	return nil
}

func (g *stager) stageName(s, first *backends.Step, from *stager) error {
	fromDir, fromName, err := from.where(*first)
	if err != nil {
		return err
	}
	dir, name, err := g.where(*s)
	if err != nil {
		return err
	}
	if err := g.locate(s, dir); err != nil {
		return err
	}
	if err := unix.Linkat(fromDir, fromName, dir, name, 0); err != nil {
		return fmt.Errorf("link to what is wanted at %s: %w", first.Change.Path, err)
	}
	n, err := stat(dir, name)
	if err != nil {
		return err
	}
	s.Place.Staged = n.identity()
	return nil
}

// checkNames refuses a group of names that cannot be one file: the plan lists
// each of them, with the same content and metadata.
func checkNames(cs []change.Change) map[change.Path]error {
	wanted := map[change.Path]*change.Entry{}
	for _, c := range cs {
		wanted[c.Path] = c.New
	}
	wrong := map[change.Path]error{}
	for _, c := range cs {
		if c.New == nil || c.New.Link == "" {
			continue
		}
		first := wanted[c.New.Link]
		if first == nil || first.Type != change.Regular || first.Link != "" || !first.Same(c.New) {
			wrong[c.Path] = fmt.Errorf("change of %s: the plan does not want the file at %s that it is to be", c.Path, c.New.Link)
		}
	}
	return wrong
}
