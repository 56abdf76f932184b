package journal

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// edit changes the database behind the journal's back, as a careless repair or
// a broken disk would: without its triggers.
func edit(t *testing.T, dir string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestEventsAreAppendOnly(t *testing.T) {
	for _, tt := range []struct{ name, statement string }{
		{"update", `UPDATE events SET actor = 'somebody else' WHERE seq = 2`},
		{"delete", `DELETE FROM events WHERE seq = 3`},
		{"replace", `INSERT OR REPLACE INTO events SELECT seq, env, txn, event, 'somebody else', data, at, boot_id, boottime, prev, hash FROM events WHERE seq = 3`},
		{"insert with a gap", `INSERT INTO events SELECT 9, env, txn, event, actor, data, at, boot_id, boottime, hash, hash FROM events WHERE seq = 3`},
		{"insert beside the chain", `INSERT INTO events SELECT 4, env, txn, event, actor, data, at, boot_id, boottime, 'x', hash FROM events WHERE seq = 3`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := threeEvents(t, t.TempDir())
			err := s.Update(t.Context(), func(tx *Tx) error { _, err := tx.exec(tt.statement); return err })
			if err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("%s: %v", tt.statement, err)
			}
			if n, err := s.VerifyChain(t.Context()); n != 3 || err != nil {
				t.Errorf("chain of %d events: %v", n, err)
			}
		})
	}
}

func TestVerifyChainFindsWhatWasEdited(t *testing.T) {
	const noUpdate, noDelete = `DROP TRIGGER events_no_update`, `DROP TRIGGER events_no_delete`
	for _, tt := range []struct {
		name       string
		statements []string
		seq        int64
		reason     string
	}{
		{"the content of one", []string{noUpdate, `UPDATE events SET data = '{"edited":1}' WHERE seq = 2`}, 2, "edited"},
		{"its time", []string{noUpdate, `UPDATE events SET boottime = boottime + 1 WHERE seq = 1`}, 1, "edited"},
		{"its environment", []string{noUpdate, `UPDATE events SET env = 'other' WHERE seq = 3`}, 3, "edited"},
		{"one removed in the middle", []string{noDelete, `DELETE FROM events WHERE seq = 2`}, 2, "missing"},
		{"the last removed", []string{noDelete, `DELETE FROM events WHERE seq = 3`}, 3, "missing"},
		{"all removed", []string{noDelete, `DELETE FROM events`}, 1, "missing"},
		{"one removed and the rest renumbered", []string{noDelete, noUpdate, `DELETE FROM events WHERE seq = 2`, `UPDATE events SET seq = 2 WHERE seq = 3`}, 2, "does not follow"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			threeEvents(t, dir).Close()
			edit(t, dir, tt.statements...)
			_, err := reopen(t, dir).VerifyChain(t.Context())
			var broken *ChainError
			if !errors.As(err, &broken) || broken.Seq != tt.seq || !strings.Contains(broken.Reason, tt.reason) || !errors.Is(err, ErrCorrupt) {
				t.Errorf("VerifyChain = %v; want event %d to be %s", err, tt.seq, tt.reason)
			}
		})
	}
}

func threeEvents(t *testing.T, dir string) *Store {
	t.Helper()
	s := reopen(t, dir)
	update(t, s, func(tx *Tx) error {
		for _, e := range []Event{
			{Env: "01", Event: "state.moved", Data: []byte(`{"to": "staged"}`)},
			{Env: "01", Txn: "apply-1", Event: "lease.armed"},
			{Env: "02", Event: "state.moved"},
		} {
			if _, err := tx.Event(e); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

func TestEventsAreSelected(t *testing.T) {
	s := threeEvents(t, t.TempDir())
	for _, tt := range []struct {
		name string
		f    EventFilter
		want int
	}{
		{"all", EventFilter{}, 3},
		{"of an environment", EventFilter{Env: "01"}, 2},
		{"of a transaction", EventFilter{Txn: "apply-1"}, 1},
		{"of a name", EventFilter{Event: "state.moved"}, 2},
		{"after one", EventFilter{After: 1}, 2},
		{"the last", EventFilter{Limit: 1}, 1},
		{"none", EventFilter{Env: "03"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			update(t, s, func(tx *Tx) error {
				es, err := tx.Events(tt.f)
				if len(es) != tt.want {
					t.Errorf("%d events, want %d: %+v", len(es), tt.want, es)
				}
				if len(es) > 0 && tt.f.Limit == 1 && es[0].Seq != 3 {
					t.Errorf("the last is %d", es[0].Seq)
				}
				return err
			})
		})
	}
	update(t, s, func(tx *Tx) error {
		es, err := tx.Events(EventFilter{})
		if err != nil {
			return err
		}
		since, err := tx.Events(EventFilter{Since: es[1].At})
		if len(since) != 2 {
			t.Errorf("%d events since the second, want 2", len(since))
		}
		return err
	})
}
