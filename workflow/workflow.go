package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/workflow/clock"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// Options say what a workflow works with. Dir and Backend are needed by every
// verb, Host by those that may touch the host.
type Options struct {
	Dir     string // state directory
	Clock   clock.Func
	Log     zerolog.Logger
	Backend backends.Backend
	Host    backends.Host
	// Exe is the program that the keeper and the boot unit run. Empty: this one.
	Exe string
	// Accept names an incomplete transaction whose leftovers a person wants to
	// keep; opening settles it as undone.
	Accept string
}

// Workflow moves environments. One is opened per command.
type Workflow struct {
	Options
	store     *journal.Store
	recovered report.Recovered
}

// Recovered says what [Open] finished or undid.
func (w *Workflow) Recovered() report.Recovered { return w.recovered }

// Open opens the state directory for a verb that changes something, making it
// when needed, and first finishes or undoes what an earlier process left half
// done on the host.
func Open(ctx context.Context, o Options) (*Workflow, error) {
	if err := prepareStateDir(o.Dir); err != nil {
		return nil, err
	}
	w, err := open(ctx, o, journal.Open)
	if err != nil {
		return nil, errors.Join(withoutJournal(ctx, o.filled(), err), err)
	}
	if w.recovered, err = w.Recover(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// OpenRead opens the state directory for a verb that only reports. A directory
// that was never made is an empty one.
func OpenRead(ctx context.Context, o Options) (*Workflow, error) {
	if _, err := os.Lstat(o.Dir); errors.Is(err, fs.ErrNotExist) {
		return &Workflow{Options: o.filled()}, nil
	}
	if err := trustStateDir(o.Dir); err != nil {
		return nil, err
	}
	w, err := open(ctx, o, journal.OpenReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return &Workflow{Options: o.filled()}, nil
	}
	return w, err
}

func open(ctx context.Context, o Options, how func(context.Context, string, journal.Options) (*journal.Store, error)) (*Workflow, error) {
	o = o.filled()
	store, err := how(ctx, o.Dir, journal.Options{Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	return &Workflow{Options: o, store: store}, nil
}

func (o Options) filled() Options {
	if o.Clock == nil {
		o.Clock = clock.Now
	}
	if o.Exe == "" {
		o.Exe, _ = os.Executable()
	}
	return o
}

// Close releases the journal.
func (w *Workflow) Close() error {
	if w.store == nil {
		return nil
	}
	return w.store.Close()
}

// Policy is what was decided at create.
type Policy struct {
	OnFailure    string `json:"on_failure"` // block-apply, warn, stop
	AutoRollback bool   `json:"auto_rollback"`
	Authority    string `json:"authority"` // root, terminal, signed
}

// The policies of --on-failure.
const (
	BlockApply = "block-apply"
	Warn       = "warn"
	StopView   = "stop"
)

// place is one environment as a step works with it: the row that was read, and
// what hangs from it.
type place struct {
	env    journal.Env
	spec   backends.Spec
	policy Policy
	view   backends.View
}

// find reads an environment without changing anything.
func (w *Workflow) find(ctx context.Context, name string) (place, error) {
	if err := checkName(name); err != nil {
		return place{}, err
	}
	if w.store == nil {
		return place{}, w.unknown(name)
	}
	var env journal.Env
	err := w.store.View(ctx, func(tx *journal.Tx) (err error) {
		env, err = tx.Env(name)
		return err
	})
	if errors.Is(err, journal.ErrNotFound) {
		return place{}, w.unknown(name)
	}
	if err != nil {
		return place{}, err
	}
	return w.placed(env)
}

// placed opens what hangs from an environment's row.
func (w *Workflow) placed(env journal.Env) (place, error) {
	p := place{env: env}
	if uid := uint32(os.Geteuid()); uid != env.UID {
		return p, hint(fmt.Errorf("%w: %s belongs to uid %d", ErrNotOwner, env.Name, env.UID), "run the command as its owner")
	}
	if err := json.Unmarshal(env.Spec, &p.spec); err != nil {
		return p, fmt.Errorf("environment %s: %w: spec: %w", env.Name, journal.ErrCorrupt, err)
	}
	if err := json.Unmarshal(env.Policy, &p.policy); err != nil {
		return p, fmt.Errorf("environment %s: %w: policy: %w", env.Name, journal.ErrCorrupt, err)
	}
	p.view = w.Backend.Open(p.spec)
	return p, nil
}

// enter reads an environment for a step that will move it: what exec ran in the
// meantime is folded in first, so the state is never behind what was run.
func (w *Workflow) enter(ctx context.Context, name string) (place, error) {
	p, err := w.find(ctx, name)
	if err != nil {
		return p, err
	}
	if !ready(p.env) {
		return p, hint(fmt.Errorf("environment %s was not completely created", name), "netsandbox discard %s --yes", name)
	}
	if p, err = w.fold(ctx, p); err != nil {
		return p, err
	}
	return w.expire(ctx, p)
}

func (w *Workflow) unknown(name string) error {
	err := fmt.Errorf("%w: %s", ErrNotFound, name)
	if os.Geteuid() != 0 {
		// A caller cannot look into root's directory, so never say "not found" of
		// something that may well be there.
		return hint(fmt.Errorf("%w in %s; environments of root are owned by root; use sudo", err, w.Dir), "sudo netsandbox status %s", name)
	}
	return hint(err, "netsandbox list")
}

func (w *Workflow) envDir(name string) string { return filepath.Join(w.Dir, envsDir, name) }

// instant returns the present instant into facts.
func (w *Workflow) instant(f *guards.Facts) error {
	now, err := w.Clock()
	if err != nil {
		return err
	}
	f.BootID, f.Now = now.BootID, now.Boottime
	return nil
}

// actor says who runs this command, for events and grants.
func actor() string {
	s := "uid " + itoa(os.Geteuid())
	if u := os.Getenv("SUDO_USER"); u != "" && os.Geteuid() == 0 {
		s += " (sudo by " + clip(u, 32) + ")"
	}
	return s
}
