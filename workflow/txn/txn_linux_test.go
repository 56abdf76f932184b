package txn

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/change"
)

func TestTrialIsTakenBack(t *testing.T) {
	w := newWorld(t)
	before := w.manifest()
	x := w.begin()
	if x.Status() != Prepared {
		t.Fatalf("status %s", x.Status())
	}
	w.trial(x)
	left, err := x.Verify(context.Background(), w.host())
	w.ok(err)
	if len(left) > 0 || x.Status() != Trial {
		t.Fatalf("status %s, leftovers %+v", x.Status(), left)
	}
	if w.manifest() == before {
		t.Fatal("the trial changed nothing")
	}
	left, err = x.Undo(context.Background(), w.host(), Watcher, "circuit api is lost")
	w.ok(err)
	if len(left) > 0 || x.Status() != Undone || !x.Finished() {
		t.Fatalf("status %s, leftovers %+v", x.Status(), left)
	}
	if d := cmp.Diff(before, w.manifest()); d != "" {
		t.Fatalf("host (-before +after):\n%s", d)
	}
	if err := x.Commit(Applier, ""); !errors.As(err, new(*DecidedError)) || errors.Is(err, ErrCommitted) {
		t.Fatalf("commit after undo: %v", err)
	}
}

func TestCommitStandsAndCanBeRolledBackLater(t *testing.T) {
	w := newWorld(t)
	before := w.manifest()
	x := w.trial(w.begin())
	w.ok(x.Commit(Applier, "all preserved"))
	if _, err := x.Undo(context.Background(), w.host(), Watcher, ""); !errors.Is(err, ErrCommitted) {
		t.Fatalf("undo after commit: %v", err)
	}
	w.ok(x.Clean(context.Background(), w.host()))
	w.ok(x.Close())
	kept, err := os.ReadFile(filepath.Join(w.root, string(x.Steps()[0].Place.Dir), nameOf(t, x, "/etc/app/conf")))
	if err != nil || string(kept) != "mode = old\n" {
		t.Fatalf("first backup: %q, %v", kept, err)
	}

	y, err := Open(x.Dir())
	w.ok(err)
	defer y.Close()
	if y.Status() != Committed || !y.Finished() || y.Verdict().By != Applier {
		t.Fatalf("status %s, verdict %+v", y.Status(), y.Verdict())
	}
	left, err := y.Rollback(context.Background(), w.host(), Operator, "asked for")
	w.ok(err)
	if len(left) > 0 || y.Status() != Undone {
		t.Fatalf("status %s, leftovers %+v", y.Status(), left)
	}
	if d := cmp.Diff(before, w.manifest()); d != "" {
		t.Fatalf("host (-before +after):\n%s", d)
	}
}

func TestRecoverTakesBackWhatNobodyDecided(t *testing.T) {
	w := newWorld(t)
	before := w.manifest()
	x := w.trial(w.begin())
	if _, err := Recover(context.Background(), x.Dir(), w.host(), "boot-1"); !errors.Is(err, ErrBusy) {
		t.Fatalf("recover beside the applier: %v", err)
	}
	w.ok(x.Close()) // as its death does
	res, err := Recover(context.Background(), x.Dir(), w.host(), "boot-2")
	w.ok(err)
	if res.Did != TakenBack || res.Status != Undone || !res.OtherBoot || res.Verdict.By != Recoverer {
		t.Fatalf("%+v", res)
	}
	if d := cmp.Diff(before, w.manifest()); d != "" {
		t.Fatalf("host (-before +after):\n%s", d)
	}
	res, err = Recover(context.Background(), x.Dir(), w.host(), "boot-2")
	w.ok(err)
	if res.Did != Nothing || res.Status != Undone {
		t.Fatalf("again: %+v", res)
	}
}

func TestHostEditDuringTheTrialSurvives(t *testing.T) {
	w := newWorld(t)
	x := w.trial(w.begin())
	edited := filepath.Join(w.root, "etc/app/conf")
	w.ok(os.WriteFile(edited, []byte("edited by the host\n"), 0o600))
	left, err := x.Undo(context.Background(), w.host(), Applier, "")
	w.ok(err)
	if len(left) != 1 || left[0].Subject != "/etc/app/conf" || x.Status() != Incomplete {
		t.Fatalf("status %s, leftovers %+v", x.Status(), left)
	}
	b, err := os.ReadFile(edited)
	w.ok(err)
	if string(b) != "edited by the host\n" {
		t.Fatalf("the edit became %q", b)
	}
	w.ok(x.Close())
	res, err := Recover(context.Background(), x.Dir(), w.host(), "boot-1")
	w.ok(err)
	if res.Status != Incomplete || cmp.Diff(left, res.Leftovers) != "" {
		t.Fatalf("recover: %+v", res)
	}
}

// nameOf returns the slot of the step for path.
func nameOf(t *testing.T, x *Txn, path change.Path) string {
	t.Helper()
	for _, s := range x.Steps() {
		if s.Change.Path == path {
			return s.Place.Name
		}
	}
	t.Fatalf("no step for %s", path)
	return ""
}

func TestPruneGivesUpTheFirstBackupOnly(t *testing.T) {
	w := newWorld(t)
	before := w.manifest()
	x := w.trial(w.begin())
	w.ok(x.Commit(Applier, ""))
	w.ok(x.Prune(context.Background(), w.host()))
	if _, err := os.Lstat(filepath.Join(w.root, string(x.Steps()[0].Place.Dir))); !os.IsNotExist(err) {
		t.Fatalf("hidden directory: %v", err)
	}
	left, err := x.Rollback(context.Background(), w.host(), Operator, "")
	w.ok(err)
	if d := cmp.Diff(before, w.manifest()); d != "" || len(left) > 0 {
		t.Fatalf("leftovers %+v, host (-before +after):\n%s", left, d)
	}
}
