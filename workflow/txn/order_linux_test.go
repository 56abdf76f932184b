package txn

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Each phase follows only from where it may; the file decides, not the caller.
func TestPhasesOutOfOrderAreRefused(t *testing.T) {
	ctx := context.Background()
	phases := map[string]func(*world, *Txn) error{
		"prepare": func(w *world, x *Txn) error { return x.Prepare(ctx, w.host(), nil) },
		"arm":     func(w *world, x *Txn) error { return x.Arm(Keeper{}) },
		"stage":   func(w *world, x *Txn) error { return x.Stage(ctx, w.host(), w.wanted) },
		"swap":    func(w *world, x *Txn) error { return x.Swap(ctx, w.host()) },
		"commit":  func(w *world, x *Txn) error { return x.Commit(Applier, "") },
		"clean":   func(w *world, x *Txn) error { return x.Clean(ctx, w.host()) },
		"prune":   func(w *world, x *Txn) error { return x.Prune(ctx, w.host()) },
		"accept":  func(w *world, x *Txn) error { return x.Accept(ctx, w.host(), "") },
		"rollback": func(w *world, x *Txn) error {
			_, err := x.Rollback(ctx, w.host(), Operator, "")
			return err
		},
	}
	for _, at := range []struct {
		status Status
		reach  func(*world, *Txn) error
		may    string // besides undo, which always may before a commit
	}{
		{Prepared, func(*world, *Txn) error { return nil }, "arm stage"},
		{Armed, func(w *world, x *Txn) error { return x.Arm(Keeper{}) }, "stage"},
		{Applying, func(w *world, x *Txn) error { return x.Stage(ctx, w.host(), w.wanted) }, "swap"},
		{Trial, func(w *world, x *Txn) error { w.trial(x); return nil }, "commit"},
		{Committed, func(w *world, x *Txn) error { w.trial(x); return x.Commit(Applier, "") }, "clean prune rollback"},
		{Undone, func(w *world, x *Txn) error { _, err := x.Undo(ctx, w.host(), Applier, ""); return err }, "clean"},
	} {
		for name, phase := range phases {
			t.Run(string(at.status)+" "+name, func(t *testing.T) {
				w := newWorld(t)
				x := w.begin()
				w.ok(at.reach(w, x))
				if x.Status() != at.status {
					t.Fatalf("status %s", x.Status())
				}
				before := w.manifest()
				err := phase(w, x)
				if may := strings.Contains(" "+at.may+" ", " "+name+" "); may != (err == nil) {
					t.Fatalf("may %v, answered %v", may, err)
				}
				if err != nil && w.manifest() != before {
					t.Error("refused, and the host moved")
				}
			})
		}
	}
}

// A process that was stopped while another took its transaction back finds the
// verdict before it touches anything.
func TestStoppedApplierFindsTheVerdict(t *testing.T) {
	w := newWorld(t)
	before := w.manifest()
	x := w.begin()
	w.ok(x.Stage(context.Background(), w.host(), w.wanted))
	w.ok(x.Unlock())
	if res, err := Recover(context.Background(), x.Dir(), w.host(), ""); err != nil || res.Did != TakenBack {
		t.Fatalf("%+v, %v", res, err)
	}
	var decided *DecidedError
	if err := x.Swap(context.Background(), w.host()); !errors.As(err, &decided) || decided.Verdict.By != Recoverer {
		t.Fatalf("swap: %v", err)
	}
	if d := cmp.Diff(before, w.manifest()); d != "" {
		t.Errorf("host (-before +now):\n%s", d)
	}
}

// Two processes at one file: one holds it, the other is told or waits.
func TestOneProcessAtATime(t *testing.T) {
	w := newWorld(t)
	x := w.trial(w.begin())
	y, err := Open(x.Dir())
	w.ok(err)
	defer y.Close()
	if err := y.TryLock(); !errors.Is(err, ErrBusy) {
		t.Fatalf("second lock: %v", err)
	}
	if _, err := y.Undo(context.Background(), w.host(), Watcher, ""); !errors.Is(err, ErrBusy) {
		t.Fatalf("undo beside the holder: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := y.Lock(ctx); !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("lock with a deadline: %v", err)
	}
	locked := make(chan error)
	go func() { locked <- y.Lock(context.Background()) }()
	w.ok(x.Commit(Applier, "ours"))
	w.ok(x.Unlock())
	w.ok(<-locked)
	if y.Status() != Committed {
		t.Fatalf("the waiting one sees %s", y.Status())
	}
	// From another process, too.
	out, err := exec.Command("flock", "-n", filepath.Join(x.Dir(), logName), "true").CombinedOutput()
	if err == nil {
		t.Fatalf("flock(1) got the lock: %s", out)
	}
}

func TestAcceptSettlesAnIncompleteUndo(t *testing.T) {
	w := newWorld(t)
	x := w.trial(w.begin())
	w.ok(os.WriteFile(filepath.Join(w.root, "etc/app/conf"), []byte("keep me"), 0o600))
	left, err := x.Undo(context.Background(), w.host(), Applier, "")
	w.ok(err)
	if len(left) != 1 || x.Status() != Incomplete {
		t.Fatalf("status %s, leftovers %+v", x.Status(), left)
	}
	w.ok(x.Accept(context.Background(), w.host(), "the edit is wanted"))
	if x.Status() != Undone || !x.Finished() {
		t.Fatalf("status %s", x.Status())
	}
	res, err := Recover(context.Background(), x.Dir(), w.host(), "")
	if w.ok(x.Close()); !errors.Is(err, ErrBusy) {
		t.Fatalf("recover beside the holder: %+v, %v", res, err)
	}
	res, err = Recover(context.Background(), x.Dir(), w.host(), "")
	if err != nil || res.Did != Nothing || res.Status != Undone {
		t.Fatalf("%+v, %v", res, err)
	}
}

// Somebody removed the exchanged originals; the second copy serves.
func TestUndoFromTheSecondCopy(t *testing.T) {
	w := newWorld(t)
	before := w.manifest()
	x := w.trial(w.begin())
	hidden := filepath.Join(w.root, string(x.Steps()[0].Place.Dir))
	w.ok(os.RemoveAll(hidden))
	left, err := x.Undo(context.Background(), w.host(), Applier, "")
	w.ok(err)
	if d := cmp.Diff(withoutTop(before), withoutTop(w.manifest())); d != "" || len(left) > 0 {
		t.Errorf("leftovers %+v, host (-before +now):\n%s", left, d)
	}
}

// withoutTop drops the line of the host's root, whose time the remover moved.
func withoutTop(manifest string) string {
	_, rest, _ := strings.Cut(manifest, "\n")
	return rest
}

// And where both are gone it is said, for each thing that is lost.
func TestBothCopiesGone(t *testing.T) {
	w := newWorld(t)
	x := w.trial(w.begin())
	w.ok(os.RemoveAll(filepath.Join(w.root, string(x.Steps()[0].Place.Dir))))
	w.ok(os.RemoveAll(x.originals()))
	left, err := x.Undo(context.Background(), w.host(), Applier, "")
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "second copy") {
		t.Errorf("undo: %v", err)
	}
	lost := map[string]bool{}
	for _, l := range left {
		lost[l.Subject] = true
	}
	want := map[string]bool{"/etc/app/conf": true, "/etc/app/gone": true, "/etc/app/link": true, "/etc/app/tree": true, "/etc/app/becomes-dir": true}
	if d := cmp.Diff(want, lost); d != "" || x.Status() != Incomplete {
		t.Errorf("status %s, lost (-want +got):\n%s", x.Status(), d)
	}
}
