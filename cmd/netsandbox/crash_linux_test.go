package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/killpoint"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// A crash test runs one verb once under a tracer to learn its durable steps, then
// kills it before and after each of them, recovers, and compares the host with
// what it was and with what it was to become. There is no third answer.
type crashWorld struct {
	t     *testing.T
	bin   string // directory with netsandbox
	state string
	base  string
	env   []string
}

// The base before and after the change that every case applies: a file modified,
// one deleted, one added in a new directory, a link moved, a mode changed.
const (
	crashSetup = `set -e
umask 022
mkdir d; echo one > d/conf; echo old > gone; echo same > kept; ln -s d/conf link; echo m > mode; chmod 644 mode
touch -d @1000000000 d/conf gone kept mode; touch -d @1000000000 d .`
	crashChange = `set -e
umask 022
echo two > d/conf; rm -f gone; mkdir -p n; echo new > n/new; ln -sfn kept link; chmod 600 mode
touch -d @1000000007 d/conf n/new`
)

func newCrashWorld(t *testing.T) *crashWorld {
	t.Helper()
	nstest.New(t, nstest.Root, nstest.Overlay, nstest.TUN, nstest.NFT)
	// A mount of its own keeps what a transaction hides at the top of its target's
	// mount out of the machine's root.
	place := t.TempDir()
	if err := unix.Mount(place, place, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(place, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w := &crashWorld{t: t, bin: installed(t), state: filepath.Join(place, "state"), base: filepath.Join(place, "base")}
	w.env = append(os.Environ(), "NETSANDBOX_STATE_DIR="+w.state)
	if err := os.Mkdir(w.base, 0o755); err != nil {
		t.Fatal(err)
	}
	sh := exec.Command("sh", "-c", crashSetup)
	sh.Dir = w.base
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("set up base: %v: %s", err, out)
	}
	w.must("create", "e", "--base", w.base, "--capture-connections=false")
	t.Cleanup(func() { w.run("discard", "e", "--yes") })
	return w
}

func (w *crashWorld) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(w.bin, "netsandbox"), args...)
	cmd.Env, cmd.Dir = w.env, "/"
	return cmd
}

func (w *crashWorld) run(args ...string) (string, error) {
	cmd := w.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("netsandbox %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), err
}

func (w *crashWorld) must(args ...string) string {
	w.t.Helper()
	out, err := w.run(args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// patiently runs a verb that may find a keeper still at its last duties.
func (w *crashWorld) patiently(args ...string) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, err := w.run(args...)
		var exit *exec.ExitError
		if err == nil {
			return
		}
		busy := errors.As(err, &exit) && (exit.ExitCode() == exitBusy || strings.Contains(err.Error(), "in use by another command"))
		if !busy || time.Now().After(deadline) {
			w.t.Fatal(err)
		}
	}
}

// exercise makes the change in the view, whatever of it is there already.
func (w *crashWorld) exercise() {
	w.t.Helper()
	w.patiently("exec", "e", "--", "sh", "-c", "cd "+w.base+" && "+crashChange)
}

// host is the base as text, without the originals that a commit keeps hidden.
func (w *crashWorld) host() []string {
	w.t.Helper()
	lines, err := tree(w.base)
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "./.netsandbox-") })
}

// settled recovers until no transaction is undecided and returns the last one.
func (w *crashWorld) settled() report.Transaction {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, err := w.run("recover")
		var all []report.Transaction
		if jerr := json.Unmarshal([]byte(w.must("history", "--json")), &all); jerr != nil {
			w.t.Fatal(jerr)
		}
		open := slices.ContainsFunc(all, func(t report.Transaction) bool { return t.Status != "committed" && t.Status != "undone" })
		if !open && err == nil && len(w.keepers()) == 0 {
			if len(all) == 0 {
				return report.Transaction{}
			}
			return all[0]
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not settled: %v: %+v", err, all[0])
		}
	}
}

// keepers lists the processes that watch trials of this world.
func (w *crashWorld) keepers() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.Contains(line, []byte("\x00__keep\x00")) || !bytes.Contains(line, []byte(w.state)) {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// victim says who dies at a point.
type victim string

const (
	dieApplier victim = "applier"
	dieKeeper  victim = "keeper"
	dieBoth    victim = "both"
)

// strike is what happens when the verb stands at a point.
func (w *crashWorld) strike(v victim) killpoint.Stop {
	return func(int, killpoint.Step) bool {
		if v != dieApplier {
			for _, pid := range w.keepers() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		return v == dieKeeper // the applier goes on and must notice
	}
}

// crashCase is one verb.
type crashCase struct {
	name    string
	prepare func(w *crashWorld)          // brings the world to where the verb begins
	args    func(w *crashWorld) []string // the verb
	victims []victim
	trial   bool // the host may change
}

func crashCases() []crashCase {
	plain := func(args ...string) func(*crashWorld) []string {
		return func(*crashWorld) []string { return args }
	}
	lastTxn := func(w *crashWorld) string { return w.settled().ID }
	return []crashCase{
		{name: "fold of exec", prepare: (*crashWorld).exercise, args: plain("check", "e"), victims: []victim{dieApplier}},
		{name: "plan", prepare: func(w *crashWorld) { w.exercise(); w.must("check", "e") }, args: plain("plan", "e"), victims: []victim{dieApplier}},
		{name: "trial and commit", trial: true, victims: []victim{dieApplier, dieKeeper, dieBoth}, args: plain("apply", "e", "--yes"), prepare: func(w *crashWorld) {
			w.exercise()
			w.must("check", "e")
			w.must("plan", "e")
		}},
		{name: "rollback", trial: true, victims: []victim{dieApplier}, prepare: func(w *crashWorld) {
			w.exercise()
			w.patiently("apply", "e", "--yes")
		}, args: func(w *crashWorld) []string { return []string{"rollback", lastTxn(w), "--yes"} }},
		// Last, because its candidate stays in the layer.
		{name: "stage", prepare: (*crashWorld).exercise, victims: []victim{dieApplier}, args: func(w *crashWorld) []string {
			return []string{"stage", "e", filepath.Join(w.base, "kept"), "--from", filepath.Join(w.base, "mode")}
		}},
	}
}

// TestCrashAtEveryDurableStep prints, per verb, how many steps a traced run took
// and at how many it was killed; the two must agree.
func TestCrashAtEveryDurableStep(t *testing.T) {
	w := newCrashWorld(t)
	before := w.host()
	w.exercise()
	w.patiently("apply", "e", "--yes")
	after := w.host()
	w.must("rollback", w.settled().ID, "--yes")
	if diff := cmp.Diff(before, w.host()); diff != "" {
		t.Fatalf("a plain rollback does not restore the host (-want +got):\n%s", diff)
	}
	for _, c := range crashCases() {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			c.run(w, before, after)
		})
	}
}

func (c crashCase) run(w *crashWorld, before, after []string) {
	// Once untraced, so that what is done once in an environment's life is done.
	c.prepare(w)
	w.patiently(c.args(w)...)
	c.restore(w, before)
	c.prepare(w)
	watched := []bool{} // by step: whether there is a keeper to kill
	err := killpoint.Run(w.command(c.args(w)...), func(_ int, _ killpoint.Step, when killpoint.When) bool {
		if when == killpoint.Before {
			watched = append(watched, c.trial && len(w.keepers()) > 0)
		}
		return true
	})
	if err != nil {
		w.t.Fatalf("traced run: %v", err)
	}
	c.restore(w, before)
	struck, kills := 0, 0
	for n := range watched {
		hit := false
		for _, when := range []killpoint.When{killpoint.Before, killpoint.After} {
			for _, v := range c.victims {
				if v != dieApplier && !watched[n] {
					continue
				}
				// The last steps are SQLite's, which folds its log back when nobody else
				// has the database open just then: try again until they are there.
				reached := false
				for range 5 {
					kills++
					if reached = c.strike(w, n+1, when, v, before, after); reached {
						break
					}
				}
				hit = hit || reached
			}
		}
		if hit {
			struck++
		}
	}
	count(w.t, fmt.Sprintf("%s: %d durable steps traced, killed at %d of them, %d times in all", c.name, len(watched), struck, kills))
	if struck != len(watched) {
		w.t.Errorf("killed at %d of %d steps", struck, len(watched))
	}
}

// count says a figure, also where go test shows nothing of a test that passes:
// CRASH_SUMMARY names a file for the one who runs the suite.
func count(t *testing.T, line string) {
	t.Helper()
	t.Log(line)
	name := os.Getenv("CRASH_SUMMARY")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(f, line)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// strike kills once, recovers, and judges the host.
func (c crashCase) strike(w *crashWorld, n int, when killpoint.When, v victim, before, after []string) bool {
	c.prepare(w)
	reached, err := killpoint.Kill(w.command(c.args(w)...), n, when, w.strike(v))
	if err != nil && !errors.As(err, new(*killpoint.ExitError)) {
		w.t.Fatal(err)
	}
	last := w.settled()
	got := w.host()
	isBefore, isAfter := cmp.Equal(before, got), cmp.Equal(after, got)
	at := fmt.Sprintf("%s killed %s step %d", v, when, n)
	switch {
	case !isBefore && !isAfter:
		w.t.Errorf("%s: the host is a mixture (-before +got):\n%s", at, cmp.Diff(before, got))
	case !c.trial && !isBefore:
		w.t.Errorf("%s: the host changed", at)
	case c.trial && last.Status == "committed" != isAfter:
		w.t.Errorf("%s: transaction is %s, host is after: %v", at, last.Status, isAfter)
	}
	c.restore(w, before)
	return reached
}

// restore brings the host back for the next point.
func (c crashCase) restore(w *crashWorld, before []string) {
	if last := w.settled(); last.Status == "committed" {
		w.patiently("rollback", last.ID, "--yes")
	}
	if diff := cmp.Diff(before, w.host()); diff != "" {
		w.t.Fatalf("the host is not as before (-want +got):\n%s", diff)
	}
}
