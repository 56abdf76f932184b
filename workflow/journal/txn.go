package journal

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/netsandbox/netsandbox/workflow/clock"
)

// Txn is the index entry of one transaction; its file is the truth.
type Txn struct {
	Seq     int64
	ID      string
	Env     string // environment id
	EnvName string // as it is or was called; not stored twice
	Cycle   int
	Plan    string // digest
	Grant   string // grant id
	Status  string // "prepared", "armed", …: the transaction's own small machine
	Path    string // the transaction file
	Detail  json.RawMessage
	Updated time.Time
	clock.Instant
}

const selectTxn = `SELECT t.seq, t.id, t.env, e.name, t.cycle, t.plan, t.grant_id, t.status, t.path, t.detail, t.updated_at, t.at, t.boot_id, t.boottime
	FROM transactions t JOIN environments e ON e.id = t.env`

func scanTxn(r row) (x Txn, err error) {
	err = r.Scan(&x.Seq, &x.ID, &x.Env, &x.EnvName, &x.Cycle, &x.Plan, &x.Grant, &x.Status, &x.Path, raw{&x.Detail},
		wall{&x.Updated}, wall{&x.At}, &x.BootID, &x.Boottime)
	return x, err
}

// AddTxn records a transaction in the status it has.
func (t *Tx) AddTxn(x Txn) error {
	var err error
	if x.Instant, err = t.stamp(x.Instant); err != nil {
		return err
	}
	detail, err := compact(x.Detail)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO transactions
		(id, env, cycle, plan, grant_id, status, path, detail, updated_at, at, boot_id, boottime)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		x.ID, x.Env, x.Cycle, x.Plan, x.Grant, x.Status, x.Path, detail,
		utc(x.At), utc(x.At), x.BootID, int64(x.Boottime))
	if err != nil {
		return fmt.Errorf("record transaction %s: %w", x.ID, err)
	}
	return nil
}

// Txn returns one transaction.
func (t *Tx) Txn(id string) (Txn, error) {
	x, err := one(t, scanTxn, selectTxn+` WHERE t.id = ?`, id)
	if err != nil {
		return x, fmt.Errorf("transaction %s: %w", id, err)
	}
	return x, nil
}

// TxnFilter selects transactions; a zero field selects all.
type TxnFilter struct {
	Env    string // environment id
	Cycle  int
	Status []string
}

// Txns returns the selected transactions, newest first.
func (t *Tx) Txns(f TxnFilter) ([]Txn, error) {
	query, args := selectTxn+` WHERE (? = '' OR t.env = ?) AND (? = 0 OR t.cycle = ?)`, []any{f.Env, f.Env, f.Cycle, f.Cycle}
	if len(f.Status) > 0 {
		query += ` AND t.status IN (?` + strings.Repeat(`, ?`, len(f.Status)-1) + `)`
		for _, s := range f.Status {
			args = append(args, s)
		}
	}
	xs, err := all(t, scanTxn, query+` ORDER BY t.seq DESC`, args...)
	if err != nil {
		return nil, fmt.Errorf("read transactions: %w", err)
	}
	return xs, nil
}

// MoveTxn changes the status of a transaction that still has the given one,
// else it answers [ErrMoved]. A nil detail leaves the stored one.
func (t *Tx) MoveTxn(id, from, to string, detail json.RawMessage) error {
	now, err := t.opt.Clock()
	if err != nil {
		return err
	}
	var text any
	if detail != nil {
		if text, err = compact(detail); err != nil {
			return err
		}
	}
	r, err := t.exec(`UPDATE transactions SET status = ?, detail = coalesce(?, detail), updated_at = ? WHERE id = ? AND status = ?`,
		to, text, utc(now.At), id, from)
	if err == nil {
		err = changed(r, ErrMoved)
	}
	if err != nil {
		return fmt.Errorf("move transaction %s from %s to %s: %w", id, from, to, err)
	}
	return nil
}
