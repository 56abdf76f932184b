package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What is immutable on the host cannot be changed inside, in no way of the table.
func TestMatrixImmutableInside(t *testing.T) {
	matrixHost(t)
	w := newImmutableWorld(t)
	w.chattr("+i")
	before := w.picture(true)
	for _, p := range w.pairs {
		_, err := w.run("exec", "e", "--", "sh", "-c", matrixScript(w.base, w.large, []matrixPair{p}))
		if err == nil || !strings.Contains(err.Error(), "Operation not permitted") || !strings.Contains(err.Error(), p.dir()+" failed") {
			t.Errorf("%s: inside, the flag does not hold: %v", p.dir(), err)
		}
	}
	w.refused("nothing in the view differs from the host")
	w.same("the host after commands that were refused", before, w.picture(true))
	count(t, fmt.Sprintf("matrix: %d pairs refused inside", len(w.pairs)))
}

// What becomes immutable after it was changed inside blocks the plan, by name;
// when it no longer is, the plan goes on.
func TestMatrixImmutableBlocks(t *testing.T) {
	matrixHost(t)
	w := newImmutableWorld(t)
	w.rehearse()
	wanted := w.view()
	w.must("check", "e")
	w.chattr("+i")
	before := w.picture(true)
	said := w.refused("immutable")
	for _, p := range w.pairs {
		if path := filepath.Join(w.base, p.dir(), "t"); !strings.Contains(said, path+" (it is immutable)") {
			t.Errorf("%s is not named:\n%s", path, said)
		}
	}
	w.same("the host after the refusal", before, w.picture(true))

	w.chattr("-i")
	before = w.picture(true)
	w.must("apply", "e", "--yes")
	got := w.picture(false)
	kept := keptDirectories(before, wanted)
	w.same("the host after apply, against the view", undate(wanted, kept), undate(samePlaces(wanted, got), kept))
	w.must("rollback", w.settled().ID, "--yes")
	w.same("the host after rollback", before, w.picture(true))
	count(t, fmt.Sprintf("matrix: %d pairs blocked on the host, then applied", len(w.pairs)))
}

// newImmutableWorld has every kind of the table over a file that is not immutable
// yet.
func newImmutableWorld(t *testing.T) *matrixWorld {
	t.Helper()
	w := newMatrixWorld(t, installed(t), 1<<20, pairsOver(func(host string) bool { return host == immutable }))
	t.Cleanup(func() { w.chattr("-i") }) // or nothing could remove it
	return w
}

// chattr sets or takes the flag of every target that is there.
func (w *matrixWorld) chattr(flag string) {
	w.t.Helper()
	targets, err := filepath.Glob(filepath.Join(w.base, "*", "t"))
	if err != nil {
		w.t.Fatal(err)
	}
	if out, err := exec.Command("chattr", append([]string{"-f", flag}, targets...)...).CombinedOutput(); err != nil {
		w.t.Fatalf("chattr: %v: %s", err, out)
	}
}

// refused wants apply to be refused, and returns what it said.
func (w *matrixWorld) refused(why string) string {
	w.t.Helper()
	_, err := w.run("apply", "e", "--yes")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitBlocked || !strings.Contains(err.Error(), why) {
		w.t.Fatalf("apply ended with %v, want a refusal with %q", err, why)
	}
	return err.Error()
}
