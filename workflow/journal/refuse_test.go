package journal

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// place is a state directory whose journal is about to be refused.
type place struct {
	t   *testing.T
	dir string
}

func (p place) path() string { return filepath.Join(p.dir, File) }

func (p place) write(b []byte) {
	p.t.Helper()
	if err := os.WriteFile(p.path(), b, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// ours leaves a closed journal with something in it.
func (p place) ours() []byte {
	p.t.Helper()
	threeEvents(p.t, p.dir).Close()
	b, err := os.ReadFile(p.path())
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

func TestRefusedJournalIsLeftAlone(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(p place)
		want    error
	}{
		{"text", func(p place) {
			p.write([]byte("this is a file of some other program, and long enough to hold a header of one hundred bytes or so"))
		}, ErrForeign},
		{"short text", func(p place) { p.write([]byte("hello\n")) }, ErrForeign},
		{"a database of another application", func(p place) {
			db, err := sql.Open("sqlite", "file:"+p.path())
			if err == nil {
				_, err = db.Exec(`CREATE TABLE events (x); PRAGMA application_id = 42; PRAGMA user_version = 1`)
				db.Close()
			}
			if err != nil {
				p.t.Fatal(err)
			}
		}, ErrForeign},
		{"a directory", func(p place) { _ = os.Mkdir(p.path(), 0o700) }, ErrForeign},
		{"a symbolic link", func(p place) { _ = os.Symlink("/dev/null", p.path()) }, ErrForeign},
		{"a newer version", func(p place) { p.ours(); edit(p.t, p.dir, `PRAGMA user_version = 99`) }, ErrNewer},
		{"an empty file", func(p place) { p.write(nil) }, ErrCorrupt},
		{"half a header", func(p place) { p.write(p.ours()[:50]) }, ErrCorrupt},
		{"cut short", func(p place) { p.write(p.ours()[:4096*3]) }, ErrCorrupt},
		{"zeroes in the schema", func(p place) { b := p.ours(); clear(b[200:4096]); p.write(b) }, ErrCorrupt},
		{"zeroes in a later page", func(p place) { b := p.ours(); clear(b[4096*2 : 4096*4]); p.write(b) }, ErrCorrupt},
		{"a mode without write", func(p place) { p.ours(); _ = os.Chmod(p.path(), 0o400) }, ErrReadOnly},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := place{t, t.TempDir()}
			tt.prepare(p)
			before := digestDir(t, p.dir)
			s, err := Open(t.Context(), p.dir, Options{})
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("Open = %v, want %v", err, tt.want)
			}
			if after := digestDir(t, p.dir); after != before {
				t.Error("the refused journal was changed")
			}
		})
	}
}

// A newer version may have written it only to the log: killed before a
// checkpoint, the header is still old.
func TestNewerVersionInALeftLogIsRefused(t *testing.T) {
	p := place{t, t.TempDir()}
	p.ours()
	db := connect(p.path(), modeWrite)
	defer db.Close()
	if _, err := db.Exec(`PRAGMA user_version = 99`); err != nil {
		t.Fatal(err)
	}
	// A copy of the files in this moment is what a power cut leaves.
	left := place{t, t.TempDir()}
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(p.path() + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(left.path()+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := inspect(left.path(), 1); err != nil {
		t.Fatalf("the header shows it already: %v", err)
	}
	sum := digest(t, left.path())
	if _, err := Open(t.Context(), left.dir, Options{}); !errors.Is(err, ErrNewer) {
		t.Errorf("Open = %v, want ErrNewer", err)
	}
	if digest(t, left.path()) != sum {
		t.Error("the refused journal was changed")
	}
}

func TestReadOnlyOpenOfNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenReadOnly(t.Context(), dir, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenReadOnly = %v, want fs.ErrNotExist", err)
	}
	if es, _ := os.ReadDir(dir); len(es) != 0 {
		t.Errorf("it made %v", es)
	}
}

func TestReadOnlyStoreReadsAndNeverWrites(t *testing.T) {
	p := place{t, t.TempDir()}
	p.ours()
	s, err := OpenReadOnly(t.Context(), p.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n, err := s.VerifyChain(t.Context()); n != 3 || err != nil {
		t.Errorf("chain of %d events: %v", n, err)
	}
	if err := s.Update(t.Context(), func(*Tx) error { return nil }); !errors.Is(err, ErrReadOnly) {
		t.Errorf("Update = %v, want ErrReadOnly", err)
	}
	err = s.View(t.Context(), func(tx *Tx) error { _, err := tx.Event(Event{Event: "plan.made"}); return err })
	if !errors.Is(err, ErrReadOnly) {
		t.Errorf("a write in View = %v, want ErrReadOnly", err)
	}
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	p := place{t, t.TempDir()}
	s := threeEvents(t, p.dir) // open, so that log and index are there
	defer s.Close()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		st, err := os.Stat(p.path() + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %#o", st.Name(), st.Mode().Perm())
		}
	}
}

func digest(t *testing.T, path string) [32]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// digestDir covers names, modes and bytes of everything in a directory.
func digestDir(t *testing.T, dir string) (sum [32]byte) {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h.Write([]byte(path + info.Mode().String()))
		if d.Type().IsRegular() {
			b := digest(t, path)
			h.Write(b[:])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Sum(sum[:0])
	return sum
}
