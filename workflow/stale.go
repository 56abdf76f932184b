package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// staleView is the word for a path that a view shows, or may show, as the host no
// longer has it.
const staleView = "stale-view"

// stale lists what a live view may still show as it was before a transaction,
// be it a commit, a trial that is on the host now, or one taken back. A view
// serves the files that it has looked up for as long as it lives.
//
// Nobody marks a view. What was done to the host is in the files of the
// transactions, which are durable before the first change, and the question is
// asked anew each time: a process that dies right after its commit cannot have
// forgotten to tell. exec does not ask; it builds a view in which nothing lives
// again anyway.
func (w *Workflow) stale(ctx context.Context, p place, st backends.Status, cs []change.Change) ([]change.Blocker, error) {
	view, ok := p.view.(backends.Dated)
	if !ok || st.Init == 0 {
		return nil, nil
	}
	dirs, err := w.touchedSince(st.Since)
	if err != nil {
		return nil, err
	}
	own := map[change.Path]bool{}
	for _, c := range cs {
		own[c.Path] = true // the layer has its own, and an origin to be held against
	}
	var out []change.Blocker
	named := map[change.Path]bool{}
	for _, dir := range slices.Backward(dirs) {
		id, all, err := changed(dir)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(p change.Path) bool { return own[p] || named[p] })
		old, err := view.Outdated(ctx, all)
		if err != nil {
			return nil, fmt.Errorf("compare the view of %s with the host: %w", p.env.Name, err)
		}
		if len(old) == 0 {
			continue
		}
		for _, p := range old {
			named[p] = true
		}
		b := change.Blocker{
			What: staleView, Subject: old[0].String(), Reason: "the view may show it as it was before " + id,
			Fix: fmt.Sprintf("netsandbox reset %s %s --stop", p.env.Name, change.Quote(string(old[0]))),
		}
		if more := len(old) - 1; more > 0 {
			b.Reason += fmt.Sprintf(", and %s of it", count(more, "more path"))
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b change.Blocker) int { return cmp.Compare(a.Subject, b.Subject) })
	return out, nil
}

// touchedSince lists the transactions whose files were written to since a view
// was built, oldest first. Every phase that changes the host is recorded before
// it begins, and another record follows it.
func (w *Workflow) touchedSince(view int64) ([]string, error) {
	dirs, err := txn.List(filepath.Join(w.Dir, txnsDir))
	if err != nil {
		return nil, err
	}
	var failed error
	since := time.Unix(0, view)
	dirs = slices.DeleteFunc(dirs, func(dir string) bool {
		fi, err := os.Lstat(filepath.Join(dir, "log"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
		return err != nil || fi.ModTime().Before(since)
	})
	return dirs, failed
}

// changed lists the paths that a transaction may have changed on the host.
// Directories that stay directories are no part of it: of those a view shows the
// host's own, whatever it has looked up.
func changed(dir string) (id string, paths []change.Path, err error) {
	t, err := txn.Open(dir)
	if unreadable(err) {
		return "", nil, nil // every verb that changes something says so
	}
	if err != nil {
		return "", nil, err
	}
	defer t.Close()
	if !t.Touched() {
		return t.ID(), nil, nil
	}
	for _, s := range t.Steps() {
		if c := s.Change; c.Old == nil || c.New == nil || c.Old.Type != change.Directory || c.New.Type != change.Directory {
			paths = append(paths, c.Path)
		}
	}
	slices.Sort(paths)
	return t.ID(), paths, nil
}

// copies names what the layer has a copy of that changes nothing, because it was
// opened for writing and closed, and that the host has changed since. The view
// would go on showing the copy however often it is built.
func copies(env string, outdated []change.Path) []change.Blocker {
	var out []change.Blocker
	for _, p := range outdated {
		out = append(out, change.Blocker{
			What: staleView, Subject: p.String(), Reason: "the view has an unchanged copy of what the host has changed since",
			Fix: fmt.Sprintf("netsandbox reset %s %s --stop", env, change.Quote(string(p))),
		})
	}
	return out
}

// renew ends a stale view in which nothing lives, and takes outdated copies out
// of its layer; whoever needs one next builds it from what the host has then. The
// caller has the environment for itself, so no command begins meanwhile; a check
// beside it loses its candidates.
func (w *Workflow) renew(ctx context.Context, p place, l layer) error {
	if len(l.stale) == 0 || len(l.status.Processes) > 0 {
		return nil
	}
	err := p.view.Stop(ctx)
	if err == nil && len(l.Outdated) > 0 {
		err = p.view.Reset(ctx, backends.Reset{Paths: l.Outdated})
	}
	if err != nil {
		return fmt.Errorf("end the stale view of %s: %w", p.env.Name, err)
	}
	return nil
}

// renewed is renew for who has not: what cannot be ended is named instead. Copies
// are taken out only while no command can begin, and looked at again under that
// lock: one that a command wrote to meanwhile is a change.
func (w *Workflow) renewed(ctx context.Context, p place, l layer) (notes []string, err error) {
	if len(l.stale) == 0 {
		return nil, nil
	}
	if len(l.Outdated) > 0 {
		unlock, err := w.lock(p, execlog.Exclusive)
		if errors.Is(err, ErrBusy) {
			return staleNotes(l.stale), nil
		}
		if err != nil {
			return nil, err
		}
		defer unlock()
		if l, err = w.read(ctx, p); err != nil {
			return nil, err
		}
	}
	if len(l.status.Processes) == 0 {
		err := p.view.Reset(ctx, backends.Reset{Paths: l.Outdated})
		if err == nil {
			return nil, nil
		}
		if !errors.Is(err, backends.ErrBusyView) {
			return nil, fmt.Errorf("end the stale view of %s: %w", p.env.Name, err)
		}
	}
	return staleNotes(l.stale), nil
}

// staleNotes says of each path what a view shows there, and what helps.
func staleNotes(bs []change.Blocker) []string {
	var out []string
	for _, b := range bs {
		if b.What == staleView {
			out = append(out, fmt.Sprintf("stale view: %s: %s: %s", b.Subject, b.Reason, b.Fix))
		}
	}
	return out
}
