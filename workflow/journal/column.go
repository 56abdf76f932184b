package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/netsandbox/netsandbox/workflow/clock"
)

// stamp returns the present instant unless at was set by the caller.
func (t *Tx) stamp(at clock.Instant) (clock.Instant, error) {
	if !at.IsZero() {
		return at, nil
	}
	return t.opt.Clock()
}

// utc is how wall-clock times are stored.
func utc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// compact returns the stored form of a JSON column; nothing is an empty object.
func compact(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "{}", nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "", fmt.Errorf("encode JSON column: %w", err)
	}
	return b.String(), nil
}

// wall scans a wall-clock column into a time; an empty one is the zero time.
type wall struct{ t *time.Time }

// Scan implements [sql.Scanner].
func (w wall) Scan(src any) error {
	switch s := src.(type) {
	case nil:
		return nil
	case time.Time: // the driver recognises some columns by their declared type
		*w.t = s.UTC()
		return nil
	case string:
		if s == "" {
			return nil
		}
		t, err := time.Parse(time.RFC3339Nano, s)
		*w.t = t
		return err
	default:
		return fmt.Errorf("time column holds %T", src)
	}
}

// raw scans a JSON column.
type raw struct{ m *json.RawMessage }

// Scan implements [sql.Scanner].
func (r raw) Scan(src any) error {
	s, ok := src.(string)
	if !ok {
		return fmt.Errorf("JSON column holds %T", src)
	}
	*r.m = json.RawMessage(s)
	return nil
}

// changed requires that a conditional update found its row.
func changed(r interface{ RowsAffected() (int64, error) }, otherwise error) error {
	n, err := r.RowsAffected()
	if err == nil && n == 0 {
		return otherwise
	}
	return err
}
