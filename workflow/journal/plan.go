package journal

import (
	"encoding/json"
	"fmt"

	"github.com/netsandbox/netsandbox/workflow/clock"
)

// Plan is the index entry of one recorded plan; the plan itself and the wanted
// bytes are below Path.
type Plan struct {
	Seq     int64
	Env     string // environment id
	Cycle   int
	Digest  string
	Layer   string // digest of the layer it was made from
	Path    string
	Summary json.RawMessage
	clock.Instant
}

const planColumns = `seq, env, cycle, digest, layer, path, summary, at, boot_id, boottime`

func scanPlan(r row) (p Plan, err error) {
	err = r.Scan(&p.Seq, &p.Env, &p.Cycle, &p.Digest, &p.Layer, &p.Path, raw{&p.Summary}, wall{&p.At}, &p.BootID, &p.Boottime)
	return p, err
}

// PutPlan records a plan as the last one of its environment and cycle.
func (t *Tx) PutPlan(p Plan) error {
	var err error
	if p.Instant, err = t.stamp(p.Instant); err != nil {
		return err
	}
	summary, err := compact(p.Summary)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO plans (`+planColumns+`) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		p.Env, p.Cycle, p.Digest, p.Layer, p.Path, summary, utc(p.At), p.BootID, int64(p.Boottime))
	if err != nil {
		return fmt.Errorf("record plan %s: %w", p.Digest, err)
	}
	return nil
}

// LastPlan returns the plan that `--yes` would grant: the last of the cycle.
func (t *Tx) LastPlan(env string, cycle int) (Plan, error) {
	p, err := one(t, scanPlan, `SELECT `+planColumns+` FROM plans WHERE env = ? AND cycle = ? ORDER BY seq DESC LIMIT 1`, env, cycle)
	if err != nil {
		return p, fmt.Errorf("plan of cycle %d: %w", cycle, err)
	}
	return p, nil
}

// Plan returns the plan with a digest, the last when it was made repeatedly.
func (t *Tx) Plan(env, digest string) (Plan, error) {
	p, err := one(t, scanPlan, `SELECT `+planColumns+` FROM plans WHERE env = ? AND digest = ? ORDER BY seq DESC LIMIT 1`, env, digest)
	if err != nil {
		return p, fmt.Errorf("plan %s: %w", digest, err)
	}
	return p, nil
}

// PlanKnown reports whether any environment, also one that ended, has recorded a
// plan with the digest. What cannot be read counts as unknown.
func (t *Tx) PlanKnown(digest string) bool {
	known, err := one(t, func(r row) (n int, err error) { return n, r.Scan(&n) }, `SELECT count(*) FROM plans WHERE digest = ?`, digest)
	return err == nil && known > 0
}
