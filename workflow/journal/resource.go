package journal

import (
	"fmt"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/workflow/clock"
)

// The life of a resource. Recorded means that it may exist.
const (
	Recorded = "recorded"
	Made     = "made"
	Gone     = "gone"
)

// Resource is a kernel object or process on the host that somebody must sweep.
type Resource struct {
	ID      int64
	Env     string // environment id, or empty
	Status  string
	Updated time.Time
	backends.Resource
	clock.Instant
}

func scanResource(r row) (x Resource, err error) {
	err = r.Scan(&x.ID, &x.Env, &x.Kind, &x.Name, &x.Data, &x.Status, wall{&x.Updated}, wall{&x.At}, &x.BootID, &x.Boottime)
	return x, err
}

// Intend records a resource before it is made and returns its id.
func (t *Tx) Intend(env string, r backends.Resource) (int64, error) {
	now, err := t.opt.Clock()
	if err != nil {
		return 0, err
	}
	res, err := t.exec(`INSERT INTO resources (env, kind, name, data, status, updated_at, at, boot_id, boottime)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		env, r.Kind, r.Name, r.Data, Recorded, utc(now.At), utc(now.At), now.BootID, int64(now.Boottime))
	if err != nil {
		return 0, fmt.Errorf("record %s %s: %w", r.Kind, r.Name, err)
	}
	return res.LastInsertId()
}

// MadeResource says that the resource exists, with what sweeping it needs.
func (t *Tx) MadeResource(id int64, data string) error {
	return t.moveResource(id, Made, &data)
}

// GoneResource says that the resource does not exist any more, or never did.
func (t *Tx) GoneResource(id int64) error {
	return t.moveResource(id, Gone, nil)
}

func (t *Tx) moveResource(id int64, to string, data *string) error {
	now, err := t.opt.Clock()
	if err != nil {
		return err
	}
	r, err := t.exec(`UPDATE resources SET status = ?, data = coalesce(?, data), updated_at = ? WHERE id = ? AND status <> 'gone'`,
		to, data, utc(now.At), id)
	if err == nil {
		err = changed(r, ErrMoved)
	}
	if err != nil {
		return fmt.Errorf("mark resource %d %s: %w", id, to, err)
	}
	return nil
}

// Resources lists what may exist: of one environment, or of all with env empty.
func (t *Tx) Resources(env string) ([]Resource, error) {
	return all(t, scanResource, `SELECT id, env, kind, name, data, status, updated_at, at, boot_id, boottime FROM resources
		WHERE status <> 'gone' AND (? = '' OR env = ?) ORDER BY id`, env, env)
}
