package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
)

// matrixWorld is a host with the host's side of some pairs, one directory each.
type matrixWorld struct {
	*crashWorld
	pairs   []matrixPair
	large   int64       // size of what is large
	started []*exec.Cmd // programs that run from files of the base
}

// newMatrixWorld makes the host's side, and an environment that has seen nothing
// yet. Call nstest.New before.
func newMatrixWorld(t *testing.T, bin string, large int64, pairs []matrixPair) *matrixWorld {
	t.Helper()
	// A mount of its own keeps what a transaction hides at the top of its target's
	// mount out of the machine's root.
	place := t.TempDir()
	if err := bindOnItself(place); err != nil {
		t.Fatal(err)
	}
	w := &matrixWorld{&crashWorld{t: t, bin: bin, state: filepath.Join(place, "state"), base: filepath.Join(place, "base")}, pairs, large, nil}
	w.env = append(os.Environ(), "NETSANDBOX_STATE_DIR="+w.state)
	if err := os.Mkdir(w.base, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, cmd := range w.started {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	for _, p := range pairs {
		m := &maker{at: filepath.Join(w.base, p.dir()), large: large, started: &w.started}
		m.do(os.Mkdir(m.at, 0o755))
		m.file("target", "both sides leave this alone", 0o644)
		p.host.host(m)
		if m.err != nil {
			t.Fatalf("%s: %v", p.dir(), m.err)
		}
	}
	w.must("create", "e", "--base", w.base, "--capture-connections=false")
	t.Cleanup(func() { w.run("discard", "e", "--yes") })
	return w
}

// running wants the programs to run on, whatever became of their files.
func (w *matrixWorld) running() {
	w.t.Helper()
	for _, cmd := range w.started {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != nil || info.Signo != 0 {
			w.t.Errorf("%s does not run any more: %v", cmd.Path, err)
		}
	}
}

// rehearse makes the view's side by commands in the view.
func (w *matrixWorld) rehearse() {
	w.t.Helper()
	w.must("exec", "e", "--", "sh", "-c", matrixScript(w.base, w.large, w.pairs))
}

// view is the picture that a command in the view has of the base.
func (w *matrixWorld) view() []string {
	w.t.Helper()
	out := w.must("exec", "e", "--", filepath.Join(w.bin, "lab"), "manifest", w.base)
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
}

// picture is the host's base, without the originals that a commit keeps hidden.
func (w *matrixWorld) picture(inodes bool) []string {
	w.t.Helper()
	lines, err := manifest.Read(w.base, manifest.Options{Inodes: inodes, Skip: func(name string) bool {
		return strings.HasPrefix(name, ".netsandbox-")
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	return lines
}

// same compares two pictures.
func (w *matrixWorld) same(what string, want, got []string) {
	w.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// matrixHost gives the test a kernel of its own with what the kinds need.
func matrixHost(t *testing.T) {
	t.Helper()
	nstest.New(
		t, nstest.Root, nstest.Overlay, nstest.TUN, nstest.NFT,
		nstest.Tool("setfacl"), nstest.Tool("setfattr"), nstest.Tool("setcap"), nstest.Tool("chattr"),
	)
}
