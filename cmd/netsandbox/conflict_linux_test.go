package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// conflictWorld is a host with one directory for each row, and an environment.
type conflictWorld struct {
	*crashWorld
	rows []conflictRow
}

func newConflictWorld(t *testing.T, rows []conflictRow) *conflictWorld {
	t.Helper()
	nstest.New(
		t, nstest.Root, nstest.Overlay, nstest.TUN, nstest.NFT,
		nstest.Tool("setfacl"), nstest.Tool("setfattr"),
	)
	place := t.TempDir()
	if err := bindOnItself(place); err != nil {
		t.Fatal(err)
	}
	w := &conflictWorld{&crashWorld{t: t, bin: installed(t), state: filepath.Join(place, "state"), base: filepath.Join(place, "base")}, rows}
	w.env = append(os.Environ(), "NETSANDBOX_STATE_DIR="+w.state, "PATH="+w.bin+":"+os.Getenv("PATH"))
	for i, r := range rows {
		if err := os.MkdirAll(w.dir(i), 0o755); err != nil {
			t.Fatal(err)
		}
		w.onHost(i, r.host)
	}
	w.must("create", "e", "--base", w.base, "--capture-connections=false")
	t.Cleanup(func() { w.run("discard", "e", "--yes") })
	return w
}

func (w *conflictWorld) dir(i int) string { return filepath.Join(w.base, fmt.Sprintf("%02d", i)) }

func (w *conflictWorld) onHost(i int, script string) {
	w.t.Helper()
	cmd := exec.Command("sh", "-euc", "umask 022; "+script)
	cmd.Dir, cmd.Env = w.dir(i), w.env
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %s: %v\n%s", w.rows[i].name, script, err, out)
	}
}

// inView does the view's part of all rows in one command.
func (w *conflictWorld) inView() {
	w.t.Helper()
	var b strings.Builder
	for i, r := range w.rows {
		fmt.Fprintf(&b, "cd %s; %s\n", w.dir(i), r.view)
	}
	w.must("exec", "e", "--", "sh", "-euc", "umask 022\n"+b.String())
}

func (w *conflictWorld) edit() {
	w.t.Helper()
	for i, r := range w.rows {
		w.onHost(i, r.edit)
	}
}

// picture is the host's base, down to the inodes.
func (w *conflictWorld) picture() []string {
	w.t.Helper()
	lines, err := manifest.Read(w.base, manifest.Options{Inodes: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return lines
}

func (w *conflictWorld) same(what string, want []string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.picture()); diff != "" {
		w.t.Errorf("%s changed the host (-was +is):\n%s", what, diff)
	}
}

// refused runs a verb that must be refused with 2, and returns what it said.
func (w *conflictWorld) refused(args ...string) string {
	w.t.Helper()
	cmd := w.command(args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != exitBlocked {
		w.t.Fatalf("netsandbox %s: %v, want status %d\n%s", strings.Join(args, " "), err, exitBlocked, out)
	}
	return string(out)
}

func (w *conflictWorld) changes() report.Changes {
	w.t.Helper()
	var doc report.Changes
	if err := json.Unmarshal([]byte(w.must("--json", "changes", "e")), &doc); err != nil {
		w.t.Fatal(err)
	}
	return doc
}

// blocked lists what stands against a plan of row i.
func (w *conflictWorld) blocked(doc report.Changes, i int) []string {
	var out []string
	for _, b := range doc.Blockers {
		if rel, ok := strings.CutPrefix(b.Subject, w.dir(i)+"/"); ok {
			out = append(out, rel)
		}
	}
	return slices.Compact(out)
}

// names holds that exactly the conflicts of the rows are named, and that the
// refusal has them.
func (w *conflictWorld) names(said string) {
	w.t.Helper()
	doc := w.changes()
	for i, r := range w.rows {
		if got, want := w.blocked(doc, i), strings.Fields(r.blocked); !slices.Equal(got, want) {
			w.t.Errorf("%s: blocked by %q, want %q", r.name, got, want)
		}
		for _, p := range strings.Fields(r.blocked) {
			if subject := w.dir(i) + "/" + p + " ("; !strings.Contains(said, subject) {
				w.t.Errorf("%s: the refusal does not name %s", r.name, subject)
			}
		}
	}
	if !strings.Contains(said, "origins-unchanged: the host is not what the change was derived from") {
		w.t.Errorf("the refusal does not name its guard:\n%s", said)
	}
}

// getFurther runs the commands that the blockers name, until none is left.
func (w *conflictWorld) getFurther(flags string) {
	w.t.Helper()
	for range 4 {
		bs := w.changes().Blockers
		if len(bs) == 0 {
			return
		}
		for _, b := range bs {
			cmd := exec.Command("sh", "-c", b.Fix+flags)
			cmd.Env = w.env
			if out, err := cmd.CombinedOutput(); err != nil {
				w.t.Fatalf("%s: %v\n%s", b.Fix, err, out)
			}
		}
	}
	w.t.Fatalf("the named commands do not get further: %+v", w.changes().Blockers)
}

func (w *conflictWorld) apply() {
	w.t.Helper()
	w.must("apply", "e", "--yes")
	for i, r := range w.rows {
		cmd := exec.Command("sh", "-ec", r.after)
		cmd.Dir = w.dir(i)
		if out, err := cmd.CombinedOutput(); err != nil {
			list, _ := exec.Command("find", w.dir(i), "-ls").Output()
			w.t.Errorf("%s: %s: %v\n%s%s", r.name, r.after, err, out, list)
		}
	}
}

// What the host changes after a command ended and before a plan is made is
// named, left alone, and the named commands get past it.
func TestHostChangedBeforeThePlan(t *testing.T) {
	w := newConflictWorld(t, conflictRows)
	w.inView()
	w.edit()
	before := w.picture()
	w.must("check", "e")
	w.names(w.refused("plan", "e"))
	w.refused("apply", "e", "--yes")
	w.same("a refusal", before)
	w.getFurther("")
	w.same("a reset", before)
	w.apply()
}

// The same between the plan and its trial. Some edits make another plan of the
// same layer, which is refused before anybody asks for origins; planning again
// names them all.
func TestHostChangedBetweenPlanAndApply(t *testing.T) {
	w := newConflictWorld(t, conflictRows)
	w.inView()
	w.must("check", "e")
	w.must("plan", "e")
	w.edit()
	before := w.picture()
	w.refused("apply", "e", "--yes")
	w.same("a refusal", before)
	w.names(w.refused("plan", "e"))
	w.same("a refusal", before)
	w.getFurther("")
	w.apply()
}

// Those that leave the plan as it is are named by the trial itself.
func TestHostChangedUnderAnAuthorizedPlan(t *testing.T) {
	rows := slices.DeleteFunc(slices.Clone(conflictRows), func(r conflictRow) bool {
		return r.blocked != "f" && r.blocked != "l" && r.blocked != "p/d/f p/d/n p/d/x"
	})
	w := newConflictWorld(t, rows)
	w.inView()
	w.must("check", "e")
	var plan report.Plan
	if err := json.Unmarshal([]byte(w.must("--json", "plan", "e")), &plan); err != nil {
		t.Fatal(err)
	}
	w.must("authorize", "e", "--plan", plan.Digest)
	w.edit()
	before := w.picture()
	w.names(w.refused("apply", "e", "--yes"))
	w.same("a refusal", before)
}

// The same while a daemon lives in the view: nobody has looked since the command
// ended. The named commands say what they would end.
func TestHostChangedBesideADaemon(t *testing.T) {
	w := newConflictWorld(t, conflictRows)
	w.must("exec", "e", "--detach", "--", "sleep", "1000")
	w.inView()
	w.changes() // what the last command left is recorded when it has ended
	w.edit()
	before := w.picture()
	w.must("check", "e")
	w.names(w.refused("plan", "e"))
	w.same("a refusal", before)
	w.getFurther(" --stop")
	w.apply()
}
