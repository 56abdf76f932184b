package journal

import (
	"fmt"

	"github.com/netsandbox/netsandbox/guards/authority"
)

// Grant is recorded authority, with what became of it.
type Grant struct {
	Env string // environment id
	authority.Grant
	UsedBy     string // the transaction it began, when Used
	RevokedFor string // why, when Revoked
}

const grantColumns = `env, id, cycle, plan, level, by, how, boot_id, expires, at, until, used_by, revoked`

func scanGrant(r row) (g Grant, err error) {
	err = r.Scan(&g.Env, &g.ID, &g.Cycle, &g.Plan, &g.Level, &g.By, &g.How, &g.BootID, &g.Expires,
		wall{&g.At}, wall{&g.Until}, &g.UsedBy, &g.RevokedFor)
	g.Used, g.Revoked = g.UsedBy != "", g.RevokedFor != ""
	return g, err
}

// PutGrant records authority. Whatever the environment was granted before is
// revoked by it: at most one grant is alive.
func (t *Tx) PutGrant(env string, g authority.Grant) error {
	if err := t.RevokeGrants(env, "replaced by grant "+g.ID); err != nil {
		return err
	}
	_, err := t.exec(`INSERT INTO grants (`+grantColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '')`,
		env, g.ID, g.Cycle, g.Plan, string(g.Level), g.By, g.How, g.BootID, int64(g.Expires), utc(g.At), utc(g.Until))
	if err != nil {
		return fmt.Errorf("record grant for plan %s: %w", g.Plan, err)
	}
	return nil
}

// LastGrant returns the newest grant of an environment, whatever became of it:
// the guard says why it does not hold.
func (t *Tx) LastGrant(env string) (Grant, error) {
	g, err := one(t, scanGrant, `SELECT `+grantColumns+` FROM grants WHERE env = ? ORDER BY seq DESC LIMIT 1`, env)
	if err != nil {
		return g, fmt.Errorf("grant: %w", err)
	}
	return g, nil
}

// UseGrant spends a grant on a transaction. One that is spent or revoked is
// [ErrMoved]: a grant is for one trial.
func (t *Tx) UseGrant(id, txn string) error {
	r, err := t.exec(`UPDATE grants SET used_by = ? WHERE id = ? AND used_by = '' AND revoked = ''`, txn, id)
	if err == nil {
		err = changed(r, ErrMoved)
	}
	if err != nil {
		return fmt.Errorf("use grant %s: %w", id, err)
	}
	return nil
}

// RevokeGrants ends every unused grant of an environment. None is no error.
func (t *Tx) RevokeGrants(env, why string) error {
	if _, err := t.exec(`UPDATE grants SET revoked = ? WHERE env = ? AND used_by = '' AND revoked = ''`, why, env); err != nil {
		return fmt.Errorf("revoke grants: %w", err)
	}
	return nil
}
