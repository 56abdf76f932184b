package journal

import (
	"encoding/json"
	"fmt"

	"github.com/netsandbox/netsandbox/workflow/clock"
)

// Origin is what the host had under one key when it was first asked.
type Origin struct {
	Env  string // environment id
	Kind string // "file", "network", …
	Key  string
	Data json.RawMessage
	clock.Instant
}

func scanOrigin(r row) (o Origin, err error) {
	err = r.Scan(&o.Env, &o.Kind, &o.Key, raw{&o.Data}, wall{&o.At}, &o.BootID, &o.Boottime)
	return o, err
}

// AddOrigin records an origin unless the key has one: the first observation is
// the one a conflict is judged by.
func (t *Tx) AddOrigin(o Origin) error {
	var err error
	if o.Instant, err = t.stamp(o.Instant); err != nil {
		return err
	}
	data, err := compact(o.Data)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO origins (env, kind, key, data, at, boot_id, boottime) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (env, kind, key) DO NOTHING`,
		o.Env, o.Kind, o.Key, data, utc(o.At), o.BootID, int64(o.Boottime))
	if err != nil {
		return fmt.Errorf("record origin %s: %w", o.Key, err)
	}
	return nil
}

// Origins lists the origins of one kind, by key.
func (t *Tx) Origins(env, kind string) ([]Origin, error) {
	return all(t, scanOrigin, `SELECT env, kind, key, data, at, boot_id, boottime FROM origins
		WHERE env = ? AND kind = ? ORDER BY key`, env, kind)
}

// DropOrigins forgets the origins of one kind, so that the next are first again:
// after a reset, a commit, a refresh of the baseline.
func (t *Tx) DropOrigins(env, kind string) error {
	if _, err := t.exec(`DELETE FROM origins WHERE env = ? AND kind = ?`, env, kind); err != nil {
		return fmt.Errorf("drop origins of kind %s: %w", kind, err)
	}
	return nil
}
