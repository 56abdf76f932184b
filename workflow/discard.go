package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// Discard ends an environment with its unapplied changes. Its journal and its
// transactions stay.
func (w *Workflow) Discard(ctx context.Context, name string) (report.Moved, error) {
	return w.end(ctx, name, nil)
}

// Remove ends an environment that has no unapplied changes.
func (w *Workflow) Remove(ctx context.Context, name string) (report.Moved, error) {
	return w.end(ctx, name, func(p place) error {
		l, err := w.read(ctx, p)
		if err != nil {
			return err
		}
		if n := len(l.Changes) + len(l.Blockers); n > 0 {
			return w.recordRefusal(ctx, p, &RefusedError{
				Env: name, From: p.env.State, On: "remove",
				Refusals: []guards.Refusal{{
					Guard: "unchanged", Reason: fmt.Sprintf("%d unapplied changes would be lost", n),
					Fix: "netsandbox discard " + name + " --yes",
				}},
			})
		}
		return nil
	})
}

func (w *Workflow) end(ctx context.Context, name string, allowed func(place) error) (report.Moved, error) {
	doc := report.Moved{Schema: report.Schema("moved"), Name: name, On: "discard"}
	err := again(ctx, func() error {
		p, err := w.find(ctx, name)
		if err != nil {
			return err
		}
		doc.From, doc.To = p.env.State, p.env.State
		if p.env.State == states.Trial {
			return w.recordRefusal(ctx, p, impossible(guards.Facts{Env: name, State: p.env.State}, "discard"))
		}
		if ready(p.env) {
			unlock, err := w.lock(p, execlog.Exclusive)
			if err != nil {
				return err
			}
			defer unlock()
			if allowed != nil {
				if err := allowed(p); err != nil {
					return err
				}
			}
		}
		// The row ends first: from here on the name is free, and whatever of the
		// directory is left is found among the tombstones by recover.
		err = w.store.Update(ctx, func(tx *journal.Tx) error {
			if err := tx.RevokeGrants(p.env.ID, "the environment ended"); err != nil {
				return err
			}
			if err := w.event(tx, p.env.ID, "", EventEnvDiscarded, map[string]any{"name": name, "state": p.env.State}); err != nil {
				return err
			}
			return tx.Tombstone(p.env)
		})
		if err != nil {
			return err
		}
		doc.Note = "transactions stay: netsandbox history"
		ctx := context.WithoutCancel(ctx)
		if err := w.bury(ctx, p.spec); err != nil {
			// It has no name any more, so nothing else says where the rest is.
			return hint(err, "netsandbox recover, when what stands in the way is gone")
		}
		return w.forgetPlans(ctx)
	})
	return doc, err
}

// bury moves an environment's directory out of the way and lets the backend end
// and delete it. It is repeatable; recover finishes what a crash interrupted.
func (w *Workflow) bury(ctx context.Context, spec backends.Spec) error {
	if id := identity(spec.Dir); id == "" || id == spec.ID { // otherwise the name is another's already
		if err := os.Rename(spec.Dir, w.tomb(spec.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("move %s to the tombstones: %w", spec.Name, err)
		}
	}
	return w.erase(ctx, spec)
}

// tomb is where the directory of an environment goes that ended.
func (w *Workflow) tomb(id string) string { return filepath.Join(w.Dir, tombstonesDir, id) }

// putAside moves a directory that still has the name of an environment which
// ended. Whoever ended it holds its lock for as long as they are at it. The
// name may be another's by now, so its own word says whose the directory is.
func (w *Workflow) putAside(dir, id string) error {
	l, err := execlog.EnvLock(dir, execlog.Exclusive, false)
	if errors.Is(err, execlog.ErrGone) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Close()
	if identity(dir) != id {
		return nil
	}
	if id == "" {
		id = ulid.Make().String() // it has none yet: nothing was made in it
	}
	if err := os.Rename(dir, w.tomb(id)); err != nil {
		return fmt.Errorf("put aside old directory: %w", err)
	}
	return nil
}

// identity is the id of the environment that a directory was made for, or "".
func identity(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return ""
	}
	var spec backends.Spec
	if json.Unmarshal(b, &spec) != nil {
		return ""
	}
	return spec.ID
}

// erase lets the backend end and delete what lies at the tombstone.
func (w *Workflow) erase(ctx context.Context, spec backends.Spec) error {
	tomb := w.tomb(spec.ID)
	if _, err := os.Lstat(tomb); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	buried := spec
	buried.Dir = tomb
	if err := w.Backend.Open(buried).Discard(ctx); err != nil {
		return fmt.Errorf("discard %s: %w", spec.Name, err)
	}
	return w.store.Update(ctx, func(tx *journal.Tx) error {
		rs, err := tx.Resources(spec.ID)
		for _, r := range rs {
			if err := tx.GoneResource(r.ID); err != nil {
				return err
			}
		}
		return err
	})
}
