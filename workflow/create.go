package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
	"github.com/oklog/ulid/v2"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards/authority"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// CreateOptions describe a new environment.
type CreateOptions struct {
	Name, Description  string
	Base               string
	Backend            string
	OnFailure          string
	AutoRollback       bool
	CaptureConnections bool
	Authority          string
	Relay              []uint16
	Hide               []string
	// NoDefaultHide leaves the secrets of others visible; Show leaves some of them.
	NoDefaultHide bool
	Show          []string
}

// envFacts is what the journal row knows besides the state.
type envFacts struct {
	Ready bool   `json:"ready"` // create finished
	Mode  string `json:"mode"`
	// TwinLost: the loss of the twin was recorded, and no twin was there since.
	TwinLost bool `json:"twin_lost,omitempty"`
}

func ready(e journal.Env) bool {
	var f envFacts
	return json.Unmarshal(e.Facts, &f) == nil && f.Ready
}

// Create makes a new environment. Its row is the intent and is written first: a
// crash leaves an environment that every verb but discard refuses.
func (w *Workflow) Create(ctx context.Context, o CreateOptions) (report.Created, error) {
	base, err := w.checkCreate(&o)
	if err != nil {
		return report.Created{}, err
	}
	spec := backends.Spec{
		Name: o.Name, ID: ulid.Make().String(), Dir: w.envDir(o.Name), StateRoot: w.Dir, Base: base,
		UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()),
		Relay: slices.Compact(slices.Sorted(slices.Values(append(o.Relay, proxyPorts(ctx, callerEnv())...)))), Hide: o.Hide, Secrets: secrets(o),
	}
	env, err := w.intend(ctx, spec, o)
	if err != nil {
		return report.Created{}, err
	}
	made, err := w.build(ctx, spec)
	if err != nil {
		return report.Created{}, errors.Join(err, w.forget(context.WithoutCancel(ctx), env, spec))
	}
	doc := report.Created{
		Schema: report.Schema("created"), Name: o.Name, ID: spec.ID, State: states.Created, Backend: w.Backend.Name(),
		Mode: made.Mode, Base: base, Mounts: made.Mounts, Notes: made.Notes, Next: "netsandbox exec " + o.Name + " -- COMMAND",
	}
	if doc.Covers, _, err = w.covers(ctx, w.Backend.Open(spec)); err != nil {
		return doc, errors.Join(err, w.forget(context.WithoutCancel(ctx), env, spec))
	}
	found, notes := w.capture(ctx, o.CaptureConnections, spec)
	doc.Circuits, doc.Notes = len(found), append(doc.Notes, notes...)
	return doc, w.store.Update(ctx, func(tx *journal.Tx) error {
		now := env
		now.Facts, _ = json.Marshal(envFacts{Ready: true, Mode: made.Mode})
		if _, err := tx.MoveEnv(env, now); err != nil {
			return err
		}
		for _, d := range found {
			if err := tx.AddCircuit(env.ID, d); err != nil {
				return err
			}
		}
		for _, r := range made.Resources {
			id, err := tx.Intend(env.ID, r)
			if err != nil {
				return err
			}
			if err := tx.MadeResource(id, r.Data); err != nil {
				return err
			}
		}
		return w.event(tx, env.ID, "", EventEnvCreated, map[string]any{
			"name": o.Name, "base": base, "backend": doc.Backend, "mode": made.Mode, "circuits": len(found),
		})
	})
}

// checkCreate refuses what cannot be meant, before anything is made.
func (w *Workflow) checkCreate(o *CreateOptions) (base string, err error) {
	if err := checkName(o.Name); err != nil {
		return "", err
	}
	if o.Backend != "" && o.Backend != w.Backend.Name() {
		return "", hint(fmt.Errorf("%w: backend %q is not in this build", ErrUsage, o.Backend), "netsandbox create %s --backend %s", o.Name, w.Backend.Name())
	}
	if o.OnFailure == "" {
		o.OnFailure = BlockApply
	}
	if !slices.Contains([]string{BlockApply, Warn, StopView}, o.OnFailure) {
		return "", fmt.Errorf("%w: --on-failure is warn, block-apply or stop, not %q", ErrUsage, o.OnFailure)
	}
	if o.Authority == "" {
		o.Authority = string(authority.Root)
	}
	switch authority.Level(o.Authority) {
	case authority.Root, authority.Terminal:
	case authority.Signed:
		return "", hint(errors.New("signed authority is not in this build"), "netsandbox create %s --authority terminal", o.Name)
	default:
		return "", fmt.Errorf("%w: --authority is root, terminal or signed, not %q", ErrUsage, o.Authority)
	}
	if o.Base == "" {
		o.Base = "/"
	}
	abs, err := filepath.Abs(o.Base)
	if err != nil {
		return "", fmt.Errorf("resolve base: %w", err)
	}
	if base, err = filepath.EvalSymlinks(abs); err != nil {
		return "", fmt.Errorf("resolve base: %w", err)
	}
	fi, err := os.Lstat(base)
	if err != nil {
		return "", fmt.Errorf("inspect base: %w", err)
	}
	if !fi.IsDir() {
		return "", fmt.Errorf("%w: base %s is not a directory", ErrUsage, base)
	}
	if below(base, w.Dir) {
		return "", hint(fmt.Errorf("base %s lies in the state directory, which is not in any view", base), "netsandbox create %s --base DIR", o.Name)
	}
	return base, checkHide(o, base)
}

// intend writes the row of a new environment, which takes the name.
func (w *Workflow) intend(ctx context.Context, spec backends.Spec, o CreateOptions) (env journal.Env, err error) {
	js, err := json.Marshal(spec)
	if err != nil {
		return env, fmt.Errorf("record environment: %w", err)
	}
	policy, err := json.Marshal(Policy{OnFailure: o.OnFailure, AutoRollback: o.AutoRollback, Authority: o.Authority})
	if err != nil {
		return env, fmt.Errorf("record environment: %w", err)
	}
	facts, _ := json.Marshal(envFacts{})
	err = w.store.Update(ctx, func(tx *journal.Tx) error {
		env, err = tx.CreateEnv(journal.Env{
			ID: spec.ID, Name: spec.Name, UID: spec.UID, GID: spec.GID, Backend: w.Backend.Name(), Base: spec.Base,
			Description: o.Description, Policy: policy, Spec: js, Facts: facts,
		})
		return err
	})
	if errors.Is(err, journal.ErrExists) {
		return env, hint(fmt.Errorf("%w: %s", ErrExists, spec.Name), "netsandbox status %s", spec.Name)
	}
	return env, err
}

// build makes the directory and the view. A directory of that name without a
// live row is what a crash between discard's steps left; it is put aside.
func (w *Workflow) build(ctx context.Context, spec backends.Spec) (backends.Created, error) {
	if _, err := os.Lstat(spec.Dir); err == nil {
		if err := w.putAside(spec.Dir, identity(spec.Dir)); err != nil {
			return backends.Created{}, err
		}
	}
	if err := os.Mkdir(spec.Dir, 0o700); err != nil {
		return backends.Created{}, fmt.Errorf("make environment directory: %w", err)
	}
	js, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return backends.Created{}, fmt.Errorf("write spec: %w", err)
	}
	if err := renameio.WriteFile(filepath.Join(spec.Dir, specFile), js, 0o600); err != nil {
		return backends.Created{}, fmt.Errorf("write spec: %w", err)
	}
	if err := execlog.Gate(spec.Dir, execlog.Open); err != nil {
		return backends.Created{}, err
	}
	return w.Backend.Create(ctx, spec)
}

// forget takes back a create that failed.
func (w *Workflow) forget(ctx context.Context, env journal.Env, spec backends.Spec) error {
	err := w.store.Update(ctx, func(tx *journal.Tx) error { return tx.Tombstone(env) })
	return errors.Join(err, w.bury(ctx, spec))
}
