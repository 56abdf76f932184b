package journal

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/netsandbox/netsandbox/guards/circuit"
)

// Circuit is one circuit of an environment.
type Circuit struct {
	Env     string // environment id
	Created time.Time
	circuit.Definition
}

func scanCircuit(r row) (c Circuit, err error) {
	var def json.RawMessage
	if err = r.Scan(&c.Env, raw{&def}, wall{&c.Created}); err != nil {
		return c, err
	}
	if err = json.Unmarshal(def, &c.Definition); err != nil {
		err = fmt.Errorf("%w: circuit definition: %w", ErrCorrupt, err)
	}
	return c, err
}

const selectCircuit = `SELECT env, definition, created_at FROM circuits WHERE env = ? AND removed_at IS NULL`

// AddCircuit records a circuit. A label or id in use is [ErrExists].
func (t *Tx) AddCircuit(env string, d circuit.Definition) error {
	now, err := t.opt.Clock()
	if err != nil {
		return err
	}
	def, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("add circuit %s: %w", d.Label, err)
	}
	_, err = t.exec(`INSERT INTO circuits (env, id, label, definition, created_at, removed_at) VALUES (?, ?, ?, ?, ?, NULL)`,
		env, d.ID, d.Label, string(def), utc(now.At))
	if err != nil {
		return fmt.Errorf("add circuit %s: %w", d.Label, err)
	}
	return nil
}

// Circuits lists the circuits of an environment in the order they were added.
func (t *Tx) Circuits(env string) ([]Circuit, error) {
	return all(t, scanCircuit, selectCircuit+` ORDER BY rowid`, env)
}

// Circuit finds a circuit by id or label.
func (t *Tx) Circuit(env, name string) (Circuit, error) {
	c, err := one(t, scanCircuit, selectCircuit+` AND (id = ? OR label = ?) ORDER BY id = ? DESC LIMIT 1`, env, name, name, name)
	if err != nil {
		return c, fmt.Errorf("circuit %s: %w", name, err)
	}
	return c, nil
}

// SetCircuit replaces the definition of a circuit, found by its id.
func (t *Tx) SetCircuit(env string, d circuit.Definition) error {
	def, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("change circuit %s: %w", d.Label, err)
	}
	r, err := t.exec(`UPDATE circuits SET label = ?, definition = ? WHERE env = ? AND id = ? AND removed_at IS NULL`,
		d.Label, string(def), env, d.ID)
	if err == nil {
		err = changed(r, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("change circuit %s: %w", d.Label, err)
	}
	return nil
}

// RemoveCircuit ends a circuit; what was observed of it stays.
func (t *Tx) RemoveCircuit(env, id string) error {
	now, err := t.opt.Clock()
	if err != nil {
		return err
	}
	r, err := t.exec(`UPDATE circuits SET removed_at = ? WHERE env = ? AND id = ? AND removed_at IS NULL`, utc(now.At), env, id)
	if err == nil {
		err = changed(r, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("remove circuit %s: %w", id, err)
	}
	return nil
}
