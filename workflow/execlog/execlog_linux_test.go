package execlog

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/netsandbox/netsandbox/workflow/clock"
)

// fresh is the directory of an environment whose gate is open.
func fresh(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "edge")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Gate(dir, Open); err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(t *testing.T, dir string, argv ...string) {
	t.Helper()
	r, err := Begin(dir, Intent{Argv: argv, UID: 1000, Cwd: "/etc"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.End(3); err != nil {
		t.Fatal(err)
	}
}

func since(t *testing.T, dir string, offset int64) ([]Record, int64) {
	t.Helper()
	rs, next, err := Since(dir, offset)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := Length(dir); n != next || err != nil {
		t.Errorf("Length = %d (%v), Since ends at %d", n, err, next)
	}
	return rs, next
}

func TestCommandLeavesItsStartAndItsEnd(t *testing.T) {
	dir := fresh(t)
	if rs, next := since(t, dir, 0); len(rs) != 0 || next != 0 {
		t.Errorf("a new log has %v up to %d", rs, next)
	}
	run(t, dir, "sh", "-c", "secret\nline \xff")
	rs, mid := since(t, dir, 0)
	id := rs[0].ID
	want := []Record{
		{ID: id, What: "start", Argv0: "sh", Argc: 3, Argv: []string{"sh", "-c", `secret\nline \xff`}, UID: 1000, Cwd: "/etc", PID: os.Getpid()},
		{ID: id, What: "end", Status: 3},
	}
	if d := cmp.Diff(want, rs, cmpopts.IgnoreTypes(clock.Instant{})); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
	if d, ok := rs[1].Since(rs[0].Instant); !ok || d < 0 {
		t.Errorf("the end is dated %v before the start (%v)", d, ok)
	}
	run(t, dir, "true")
	later, _ := since(t, dir, mid)
	if len(later) != 2 || later[0].ID == id || !later[0].Started() || later[1].Started() {
		t.Errorf("after %d: %+v", mid, later)
	}
	st, err := os.Stat(filepath.Join(dir, logFile))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("log has mode %v (%v)", st.Mode(), err)
	}
}

func TestTornTailIsToleratedAndCounted(t *testing.T) {
	dir := fresh(t)
	run(t, dir, "first")
	path := filepath.Join(dir, logFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		_, folded := since(t, dir, 0)
		if folded != int64(cut) {
			t.Fatalf("cut at %d: folded to %d", cut, folded)
		}
		run(t, dir, "second")
		rs, _ := since(t, dir, folded)
		if len(rs) != 2 || rs[0].Argv0 != "second" || rs[0].Damaged || rs[1].What != "end" {
			t.Fatalf("cut at %d: what came after is %+v", cut, rs)
		}
		all, _ := since(t, dir, 0)
		if n := len(all); n < 2 || !all[0].Started() || all[n-2].Argv0 != "second" {
			t.Fatalf("cut at %d: the whole log is %+v", cut, all)
		}
	}
}

func TestDamagedLineCountsAsACommand(t *testing.T) {
	dir := fresh(t)
	run(t, dir, "first")
	path := filepath.Join(dir, logFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index(string(b), "first")
	b[i] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	rs, _ := since(t, dir, 0)
	if len(rs) != 2 || !rs[0].Damaged || !rs[0].Started() || rs[1].Damaged {
		t.Errorf("records: %+v", rs)
	}
}

func TestShrunkLogIsAnError(t *testing.T) {
	dir := fresh(t)
	run(t, dir, "first")
	_, next := since(t, dir, 0)
	if err := os.Truncate(filepath.Join(dir, logFile), 5); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Since(dir, next); err == nil {
		t.Error("a log that lost records was read as if nothing had happened")
	}
}

func TestGateRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, gate string
		want       error
		says       string
	}{
		{"a trial, by its transaction", Trial + " apply-1", ErrTrial, "apply-1"},
		{"a tombstone", Gone, ErrGone, ""},
		{"a word it does not know", "ajar", ErrTrial, ""},
		{"nothing readable", "", ErrTrial, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := fresh(t)
			if err := Gate(dir, tt.gate); err != nil {
				t.Fatal(err)
			}
			_, err := Begin(dir, Intent{Argv: []string{"true"}})
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Begin = %v, want %v", err, tt.want)
			}
			if n, _ := Length(dir); n != 0 {
				t.Errorf("a refused command left %d bytes", n)
			}
			if err := Gate(dir, Open); err != nil {
				t.Fatal(err)
			}
			run(t, dir, "true")
		})
	}
}

func TestGoneEnvironment(t *testing.T) {
	dir := fresh(t)
	for name, path := range map[string]string{"never made": dir + "-not", "no gate yet": t.TempDir()} {
		if _, err := Begin(path, Intent{Argv: []string{"true"}}); !errors.Is(err, ErrGone) {
			t.Errorf("%s: Begin = %v, want ErrGone", name, err)
		}
	}
	r, err := Begin(dir, Intent{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".gone"); err != nil {
		t.Fatal(err)
	}
	if err := r.End(0); err != nil {
		t.Errorf("end after the directory was renamed: %v", err)
	}
	if rs, _ := since(t, dir+".gone", 0); len(rs) != 2 {
		t.Errorf("the log that went with it: %+v", rs)
	}
}

func TestWriteOverTheGateWithoutSpace(t *testing.T) {
	dir := fresh(t)
	if err := Gate(dir, Trial+" apply-20260102-030405-long"); err != nil {
		t.Fatal(err)
	}
	e, err := openEnv(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.overwriteGate(Open); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "true")
}

func TestLockNamesItsHolder(t *testing.T) {
	dir := fresh(t)
	cmd, release := held(t, dir)
	defer release()
	_, err := EnvLock(dir, Exclusive, false)
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "pid "+strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("EnvLock beside a command of pid %d = %v", cmd.Process.Pid, err)
	}
	run(t, dir, "beside") // commands share it
	release()
	l, err := EnvLock(dir, Exclusive, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Begin(dir, Intent{Argv: []string{"true"}}); !errors.Is(err, ErrBusy) {
		t.Errorf("Begin beside an exclusive lock = %v, want ErrBusy", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "after")
}

func TestKilledCommandFreesTheLock(t *testing.T) {
	dir := fresh(t)
	cmd, _ := held(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	l, err := EnvLock(dir, Exclusive, true)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	rs, _ := since(t, dir, 0)
	if len(rs) != 1 || !rs[0].Started() {
		t.Errorf("the log of a killed command: %+v", rs)
	}
}

func TestCommandsOfManyProcessesKeepTheirLines(t *testing.T) {
	dir := fresh(t)
	const procs, each = 3, 40
	var cmds []*exec.Cmd
	for range procs {
		c := child(t, "many", dir, strconv.Itoa(each))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, c)
	}
	for _, c := range cmds {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	rs, _ := since(t, dir, 0)
	ids := map[string]int{}
	for _, r := range rs {
		if r.Damaged {
			t.Fatal("a line was damaged")
		}
		ids[r.ID]++
	}
	if len(ids) != procs*each {
		t.Errorf("%d commands left %d ids", procs*each, len(ids))
	}
	for id, n := range ids {
		if n != 2 {
			t.Errorf("id %s has %d records", id, n)
		}
	}
}

// exec pays for every package that is initialised before its first line.
func TestImportsStayLight(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	allowed := []string{
		"golang.org/x/sys/unix",
		"github.com/netsandbox/netsandbox/workflow/clock", "github.com/netsandbox/netsandbox/workflow/execlog",
	}
	for _, d := range deps {
		if first, _, _ := strings.Cut(d, "/"); strings.Contains(first, ".") && !slices.Contains(allowed, d) {
			t.Errorf("imports %s", d)
		}
	}
	for _, heavy := range []string{"net", "database/sql", "regexp", "text/template", "os/exec", "os/user", "log/slog"} {
		if slices.Contains(deps, heavy) {
			t.Errorf("imports %s, which is slow to initialise or draws in what is", heavy)
		}
	}
}
