package journal

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/clock"
)

// Env is one environment.
type Env struct {
	ID          string
	Name        string // unique among the live ones
	UID, GID    uint32 // owner
	Backend     string
	Base        string
	Description string
	Policy      json.RawMessage
	Spec        json.RawMessage // backends.Spec

	State states.State
	Cycle int
	// Version grows with every move; [Tx.MoveEnv] compares it.
	Version int64
	// Layer is the digest of the layer that State speaks of.
	Layer string
	// ExecFolded is how much of the exec log State accounts for.
	ExecFolded int64
	// Facts is what else the workflow knows of the present cycle.
	Facts json.RawMessage

	Created   clock.Instant
	Tombstone time.Time // zero while it lives
}

const envColumns = `id, name, uid, gid, backend, base, description, policy, spec,
	state, cycle, version, layer, exec_folded, facts, created_at, boot_id, boottime, tombstone`

func scanEnv(r row) (e Env, err error) {
	var state string
	err = r.Scan(&e.ID, &e.Name, &e.UID, &e.GID, &e.Backend, &e.Base, &e.Description, raw{&e.Policy}, raw{&e.Spec},
		&state, &e.Cycle, &e.Version, &e.Layer, &e.ExecFolded, raw{&e.Facts},
		wall{&e.Created.At}, &e.Created.BootID, &e.Created.Boottime, wall{&e.Tombstone})
	if err != nil {
		return Env{}, err
	}
	if e.State, err = states.Parse(state); err != nil {
		return Env{}, fmt.Errorf("%w: environment %s: %w", ErrCorrupt, e.Name, err)
	}
	return e, nil
}

// Env returns the live environment of a name.
func (t *Tx) Env(name string) (Env, error) {
	e, err := one(t, scanEnv, `SELECT `+envColumns+` FROM environments WHERE name = ? AND tombstone IS NULL`, name)
	if err != nil {
		return e, fmt.Errorf("environment %s: %w", name, err)
	}
	return e, nil
}

// EnvByID returns an environment, also one that has ended.
func (t *Tx) EnvByID(id string) (Env, error) {
	e, err := one(t, scanEnv, `SELECT `+envColumns+` FROM environments WHERE id = ?`, id)
	if err != nil {
		return e, fmt.Errorf("environment %s: %w", id, err)
	}
	return e, nil
}

// Envs lists the live environments by name.
func (t *Tx) Envs() ([]Env, error) {
	return all(t, scanEnv, `SELECT `+envColumns+` FROM environments WHERE tombstone IS NULL ORDER BY name`)
}

// EndedEnvs lists the environments that have ended, oldest first.
func (t *Tx) EndedEnvs() ([]Env, error) {
	return all(t, scanEnv, `SELECT `+envColumns+` FROM environments WHERE tombstone IS NOT NULL ORDER BY tombstone, id`)
}

// CreateEnv records a new environment as Created, cycle 1, version 1. A live one
// of that name is [ErrExists].
func (t *Tx) CreateEnv(e Env) (Env, error) {
	var err error
	if e.Created, err = t.stamp(e.Created); err != nil {
		return e, err
	}
	e.State, e.Cycle, e.Version, e.Tombstone = states.Created, 1, 1, time.Time{}
	var js [3]string
	for i, m := range []*json.RawMessage{&e.Policy, &e.Spec, &e.Facts} {
		if js[i], err = compact(*m); err != nil {
			return e, err
		}
		*m = json.RawMessage(js[i])
	}
	_, err = t.exec(`INSERT INTO environments (`+envColumns+`)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)`,
		e.ID, e.Name, e.UID, e.GID, e.Backend, e.Base, e.Description, js[0], js[1],
		string(e.State), e.Cycle, e.Version, e.Layer, e.ExecFolded, js[2],
		utc(e.Created.At), e.Created.BootID, int64(e.Created.Boottime))
	if err != nil {
		return e, fmt.Errorf("create environment %s: %w", e.Name, err)
	}
	return e, nil
}

// MoveEnv replaces what may change of an environment — state, cycle, layer,
// fold position, facts, policy, spec, description — provided that it still is
// as it was read. Otherwise nothing is written and the answer is [ErrMoved].
func (t *Tx) MoveEnv(was, now Env) (Env, error) {
	if now.ID != was.ID || now.Name != was.Name || now.UID != was.UID || now.Backend != was.Backend || now.Base != was.Base {
		return was, fmt.Errorf("bug: move of environment %s changes what it is", was.Name)
	}
	now.Version = was.Version + 1
	var js [3]string
	for i, m := range []*json.RawMessage{&now.Policy, &now.Spec, &now.Facts} {
		var err error
		if js[i], err = compact(*m); err != nil {
			return was, err
		}
		*m = json.RawMessage(js[i])
	}
	r, err := t.exec(`UPDATE environments
		SET state = ?, cycle = ?, version = ?, layer = ?, exec_folded = ?, policy = ?, spec = ?, facts = ?, description = ?
		WHERE id = ? AND state = ? AND version = ? AND tombstone IS NULL`,
		string(now.State), now.Cycle, now.Version, now.Layer, now.ExecFolded, js[0], js[1], js[2], now.Description,
		was.ID, string(was.State), was.Version)
	if err == nil {
		err = changed(r, ErrMoved)
	}
	if err != nil {
		return was, fmt.Errorf("move environment %s from %s to %s: %w", was.Name, was.State, now.State, err)
	}
	return now, nil
}

// Tombstone ends an environment: its name is free and its row never changes
// again. Its events and transactions stay.
func (t *Tx) Tombstone(was Env) error {
	now, err := t.opt.Clock()
	if err != nil {
		return err
	}
	r, err := t.exec(`UPDATE environments SET tombstone = ?, version = version + 1
		WHERE id = ? AND state = ? AND version = ? AND tombstone IS NULL`,
		utc(now.At), was.ID, string(was.State), was.Version)
	if err == nil {
		err = changed(r, ErrMoved)
	}
	if err != nil {
		return fmt.Errorf("end environment %s: %w", was.Name, err)
	}
	return nil
}
