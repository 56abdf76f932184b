package txn

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestForgetGivesUpBothCopiesAndRefusesARollback(t *testing.T) {
	w := newWorld(t)
	x := w.trial(w.begin())
	w.ok(x.Commit(Applier, ""))
	w.ok(x.Clean(context.Background(), w.host()))
	after := visible(w)
	for range 2 { // again, as after a crash
		w.ok(x.Forget(context.Background(), w.host()))
	}
	for _, dir := range []string{filepath.Join(w.root, string(x.Steps()[0].Place.Dir)), x.originals()} {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	w.ok(x.Reload())
	if !x.Forgotten() || !x.Pruned() || x.Status() != Committed {
		t.Errorf("forgotten %v, pruned %v, %s", x.Forgotten(), x.Pruned(), x.Status())
	}
	if _, err := x.Rollback(context.Background(), w.host(), Operator, ""); !errors.Is(err, ErrForgotten) {
		t.Errorf("rollback: %v", err)
	}
	if d := cmp.Diff(after, visible(w)); d != "" {
		t.Errorf("host (-before +after):\n%s", d)
	}
}

// visible is the host without what is hidden on it.
func visible(w *world) string {
	var out strings.Builder
	for line := range strings.Lines(w.manifest()) {
		if !strings.Contains(line, ".netsandbox-") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// Whatever of it a crash left undone, a rollback that would find half of the
// originals does not begin.
func TestForgettingThatWasCutShortIsFinished(t *testing.T) {
	w := newWorld(t)
	x := w.trial(w.begin())
	w.ok(x.Commit(Applier, ""))
	w.ok(x.write(record{Kind: recForgotten}))
	if _, err := x.Rollback(context.Background(), w.host(), Operator, ""); !errors.Is(err, ErrForgotten) {
		t.Errorf("rollback: %v", err)
	}
	w.ok(x.Forget(context.Background(), w.host()))
	if _, err := os.Lstat(x.originals()); !os.IsNotExist(err) {
		t.Errorf("second copy: %v", err)
	}
}

func TestForgetWaitsForADecision(t *testing.T) {
	w := newWorld(t)
	x := w.trial(w.begin())
	if err := x.Forget(context.Background(), w.host()); err == nil {
		t.Error("a trial was forgotten")
	}
	left, err := x.Undo(context.Background(), w.host(), Applier, "")
	w.ok(err)
	if len(left) > 0 {
		t.Fatalf("leftovers %+v", left)
	}
	w.ok(x.Forget(context.Background(), w.host()))
	if x.Status() != Undone {
		t.Errorf("it is %s", x.Status())
	}
}
