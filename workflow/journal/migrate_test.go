package journal

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/netsandbox/netsandbox/states"
)

// fixture makes a journal exactly as version 1 left it, from a dump that never
// changes.
func fixture(t *testing.T) (dir string) {
	t.Helper()
	dump, err := os.ReadFile("testdata/v1.sql")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, File))
	if err == nil {
		_, err = db.Exec(fmt.Sprintf("PRAGMA application_id = %d;\n%s\nPRAGMA user_version = 1; PRAGMA journal_mode = WAL", applicationID, dump))
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVersion1IsRead(t *testing.T) {
	s := reopen(t, fixture(t))
	if n, err := s.VerifyChain(t.Context()); n != 3 || err != nil {
		t.Errorf("chain of %d events: %v", n, err)
	}
	update(t, s, func(tx *Tx) error {
		e, err := tx.Env("edge-proxy")
		if err != nil || e.State != states.Checked || e.UID != 1000 || e.Layer != "sha256:aa" {
			t.Errorf("environment: %+v (%v)", e, err)
		}
		c, err := tx.Circuit(e.ID, "api")
		if err != nil || !c.Required || len(c.Argv) != 2 {
			t.Errorf("circuit: %+v (%v)", c, err)
		}
		x, err := tx.Txn("apply-1")
		if err != nil || x.Status != "undone" || x.EnvName != "edge-proxy" {
			t.Errorf("transaction: %+v (%v)", x, err)
		}
		_, err = tx.Event(Event{Env: e.ID, Event: "state.moved"})
		return err
	})
}

func TestMigrationsRunOnceEachInOrder(t *testing.T) {
	dir := fixture(t)
	grown := append(append([]string{}, migrations...),
		`CREATE TABLE notes (n INTEGER) STRICT; INSERT INTO notes VALUES (2)`,
		`INSERT INTO notes VALUES (3)`)
	if _, err := OpenReadOnly(t.Context(), dir, Options{migrations: grown}); !errors.Is(err, ErrOlder) {
		t.Errorf("OpenReadOnly of an older journal = %v, want ErrOlder", err)
	}
	for range 2 {
		s, err := Open(t.Context(), dir, Options{migrations: grown})
		if err != nil {
			t.Fatal(err)
		}
		var n, sum int
		err = s.read.QueryRow(`SELECT count(*), sum(n) FROM notes`).Scan(&n, &sum)
		if n != 2 || sum != 5 || err != nil {
			t.Errorf("the migrations left %d rows of sum %d (%v), want 2 of sum 5", n, sum, err)
		}
		s.Close()
	}
	if _, err := Open(t.Context(), dir, Options{}); !errors.Is(err, ErrNewer) {
		t.Errorf("the older program opens it: %v, want ErrNewer", err)
	}
}

func TestFailedMigrationLeavesTheVersionBefore(t *testing.T) {
	dir := fixture(t)
	broken := append(append([]string{}, migrations...), `CREATE TABLE notes (n INTEGER) STRICT; INSERT INTO nowhere VALUES (1)`)
	if _, err := Open(t.Context(), dir, Options{migrations: broken}); err == nil {
		t.Fatal("a migration that fails was taken")
	}
	s := reopen(t, dir)
	if n, err := s.VerifyChain(t.Context()); n != 3 || err != nil {
		t.Errorf("chain of %d events: %v", n, err)
	}
	if err := s.read.QueryRow(`SELECT 1 FROM notes`).Scan(new(int)); err == nil {
		t.Error("half of the migration stayed")
	}
}

func TestTwoProcessesCreateOneJournal(t *testing.T) {
	dir := t.TempDir()
	a, b := child(t, "open", dir), child(t, "open", dir)
	for _, c := range []interface{ Start() error }{a, b} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(a.Wait(), b.Wait()); err != nil {
		t.Fatal(err)
	}
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		// The last to close removes the log, and two that close at once may each
		// take the other for the last.
		if name := e.Name(); name != File && name != File+"-wal" && name != File+"-shm" && name != "journal.reserve" {
			t.Errorf("the directory holds %s besides the journal", name)
		}
	}
	reopen(t, dir)
}
