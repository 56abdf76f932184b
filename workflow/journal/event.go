package journal

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/netsandbox/netsandbox/workflow/clock"
)

// Event is one thing that happened. Seq, Prev and Hash are given when it is
// appended.
type Event struct {
	Seq   int64
	Env   string // environment id; empty for the host as a whole
	Txn   string
	Event string // "state.moved": noun.past-participle
	Actor string // "uid 0"
	Data  json.RawMessage
	clock.Instant
	Prev string
	Hash string
}

const eventColumns = `seq, env, txn, event, actor, data, at, boot_id, boottime, prev, hash`

func scanEvent(r row) (e Event, err error) {
	err = r.Scan(&e.Seq, &e.Env, &e.Txn, &e.Event, &e.Actor, raw{&e.Data}, wall{&e.At}, &e.BootID, &e.Boottime, &e.Prev, &e.Hash)
	return e, err
}

// Event appends one event to the chain and returns it complete.
func (t *Tx) Event(e Event) (Event, error) {
	var err error
	if e.Instant, err = t.stamp(e.Instant); err != nil {
		return e, err
	}
	data, err := compact(e.Data)
	if err != nil {
		return e, err
	}
	e.Data = json.RawMessage(data)
	if e.Seq, e.Prev, err = t.head(); err != nil {
		return e, err
	}
	e.Seq++
	e.Hash = e.digest()
	_, err = t.exec(`INSERT INTO events (`+eventColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		e.Seq, e.Env, e.Txn, e.Event, e.Actor, data, utc(e.At), e.BootID, int64(e.Boottime), e.Prev, e.Hash)
	if err != nil {
		return e, fmt.Errorf("append event %s: %w", e.Event, err)
	}
	return e, nil
}

// EventFilter selects events; a zero field selects all.
type EventFilter struct {
	Env   string // environment id
	Txn   string
	Event string
	After int64     // only a greater Seq
	Since time.Time // only at or after, by the wall clock
	Limit int       // only the last so many
}

// Events returns the selected events in the order they happened.
func (t *Tx) Events(f EventFilter) ([]Event, error) {
	where, args := []string{"seq > ?"}, []any{f.After}
	add := func(set bool, cond string, arg any) {
		if set {
			where, args = append(where, cond), append(args, arg)
		}
	}
	add(f.Env != "", "env = ?", f.Env)
	add(f.Txn != "", "txn = ?", f.Txn)
	add(f.Event != "", "event = ?", f.Event)
	// Text with a varying number of decimals does not sort as time does.
	add(!f.Since.IsZero(), "unixepoch(at, 'subsec') >= ?", float64(f.Since.UnixMilli())/1000)
	limit := -1
	if f.Limit > 0 {
		limit = f.Limit
	}
	es, err := all(t, scanEvent, `SELECT `+eventColumns+` FROM (
		SELECT `+eventColumns+` FROM events WHERE `+strings.Join(where, " AND ")+` ORDER BY seq DESC LIMIT ?
	) ORDER BY seq`, append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return es, nil
}
