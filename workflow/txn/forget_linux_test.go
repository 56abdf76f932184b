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

// Whatever of it a crash leaves undone, a rollback that would find half of the
// originals does not begin, and asking again finishes it.
func TestForgettingThatIsCutShortIsFinished(t *testing.T) {
	var points []string
	forgetUntil(t, func(point string) { points = append(points, point) })
	if len(points) < 6 {
		t.Fatalf("durable steps: %q", points)
	}
	for n, point := range points {
		t.Run(point, func(t *testing.T) {
			at := 0
			w, x := forgetUntil(t, func(string) {
				if at++; at == n+1 {
					panic(errCut)
				}
			})
			left, err := x.Rollback(context.Background(), w.host(), Operator, "")
			switch {
			case x.Forgotten() != errors.Is(err, ErrForgotten):
				t.Errorf("forgotten %v, rollback: %v", x.Forgotten(), err)
			case err == nil && len(left) > 0: // the intent was not written: nothing is lost
				t.Errorf("leftovers %+v", left)
			}
			w.ok(x.Forget(context.Background(), w.host()))
			if _, err := os.Lstat(x.originals()); !os.IsNotExist(err) {
				t.Errorf("second copy: %v", err)
			}
		})
	}
}

var errCut = errors.New("cut short")

// forgetUntil forgets a committed transaction until trace panics, and returns it
// as another process finds it.
func forgetUntil(t *testing.T, trace func(point string)) (*world, *Txn) {
	w := newWorld(t)
	x := w.trial(w.begin())
	w.ok(x.Commit(Applier, ""))
	w.ok(x.Clean(context.Background(), w.host()))
	func() {
		defer func() {
			TestOnlyStep = nil
			r := recover()
			if err, _ := r.(error); r != nil && !errors.Is(err, errCut) {
				panic(r)
			}
		}()
		TestOnlyStep = trace
		w.ok(x.Forget(context.Background(), w.host()))
	}()
	dir := x.Dir()
	w.ok(x.Close())
	again, err := Open(dir)
	w.ok(err)
	t.Cleanup(func() { again.Close() })
	return w, again
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
