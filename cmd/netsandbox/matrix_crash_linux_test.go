package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest/killpoint"
)

// TestMatrixCrash kills, for every pair, an apply in the middle of that pair's
// swap: right after the first call that changed anything of it. Who dies changes
// from pair to pair, so that keeper and recover both bring the host back. The
// pairs over one kind of the host share a transaction; each crash is judged over
// all of them.
func TestMatrixCrash(t *testing.T) {
	matrixHost(t)
	bin := installed(t)
	crashes := 0
	for _, host := range matrixKinds {
		if host.name == immutable {
			continue
		}
		pairs := pairsOver(func(name string) bool { return name == host.name })
		w := newMatrixWorld(t, bin, 2<<20, pairs) // hashed a thousand times
		before := w.picture(true)
		w.rehearse()
		for i, p := range pairs {
			v := []victim{dieApplier, dieBoth}[i%2]
			w.crash(p, v)
			if last := w.settled(); last.Status != "undone" {
				t.Errorf("%s, %s killed: the transaction is %s", p.dir(), v, last.Status)
			}
			got := w.picture(true)
			w.same(fmt.Sprintf("the host after %s killed in %s", v, p.dir()), before, got)
			before = got // so that one failure is one
			crashes++
		}
		w.running()
		w.must("discard", "e", "--yes")
	}
	count(t, fmt.Sprintf("matrix: crashed in the middle of the swap of each of %d pairs", crashes))
}

// crash kills an apply in the middle of a pair's swap. An apply that was not
// watched in time is taken back and tried again.
func (w *matrixWorld) crash(p matrixPair, v victim) {
	w.t.Helper()
	for range 5 {
		hit, err := w.strikePair(p, v)
		var exit *killpoint.ExitError
		switch {
		case hit && errors.As(err, &exit):
			return
		case err != nil:
			w.t.Fatalf("%s: %v", p.dir(), err)
		}
		w.patiently("rollback", w.settled().ID, "--yes")
		w.rehearse()
	}
	w.t.Fatalf("%s: never struck", p.dir())
}

func (w *matrixWorld) strikePair(p matrixPair, v victim) (hit bool, err error) {
	dir := filepath.Join(w.base, p.dir())
	before := w.stamps(dir)
	old := w.transactions()
	strike := w.strike(v)
	// Everything before the transaction is TestCrashAtEveryDurableStep's.
	opt := killpoint.Options{From: func() bool { return w.transactions() > old }, Metadata: true}
	var said bytes.Buffer
	apply := w.command("apply", "e", "--yes")
	apply.Stderr = &said
	err = opt.Run(apply, func(pid int, s killpoint.Step, _ killpoint.When) bool {
		if hit || slices.Equal(before, w.stamps(dir)) {
			return true
		}
		hit = true
		return strike(pid, s)
	})
	if err != nil {
		err = fmt.Errorf("apply: %w: %s", err, said.String())
	}
	return hit, err
}

// transactions counts those that were ever begun in this world.
func (w *matrixWorld) transactions() int {
	entries, err := os.ReadDir(filepath.Join(w.state, "txns"))
	if err != nil {
		return 0
	}
	return len(entries)
}

// stamps tells cheaply whether anything was done to a pair: which object is under
// which name, and when it last changed.
func (w *matrixWorld) stamps(dir string) []string {
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		all = append(all, fmt.Sprint(path, st.Ino, st.Ctim))
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}
