package killpoint_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest/killpoint"
)

// child makes a directory, writes and syncs a file in it, and renames it. With a
// gate it takes small steps after the first until the gate is there.
func TestMain(m *testing.M) {
	if dir := os.Getenv("KILLPOINT_CHILD"); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

func child(dir string) int {
	err := os.Mkdir(filepath.Join(dir, "d"), 0o700)
	for gate := os.Getenv("KILLPOINT_GATE"); gate != "" && err == nil; {
		if _, err := os.Stat(gate); err == nil {
			break
		}
		err = errors.Join(os.Mkdir(filepath.Join(dir, "x"), 0o700), os.Remove(filepath.Join(dir, "x")))
	}
	if os.Getenv("KILLPOINT_CHMOD") != "" {
		d, err := os.Open(filepath.Join(dir, "d"))
		if err != nil || d.Chmod(0o750) != nil {
			return 1
		}
	}
	f, err2 := os.Create(filepath.Join(dir, "d", "new"))
	if err = errors.Join(err, err2); err != nil {
		return 1
	}
	err = errors.Join(f.Sync(), f.Close(), os.Rename(f.Name(), filepath.Join(dir, "d", "final")))
	if err != nil {
		return 1
	}
	return 7
}

func command(t *testing.T) (*exec.Cmd, string) {
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "KILLPOINT_CHILD="+dir)
	return cmd, dir
}

func TestTraceListsTheStepsThatWereTaken(t *testing.T) {
	cmd, _ := command(t)
	steps, err := killpoint.Trace(cmd)
	var exit *killpoint.ExitError
	if !errors.As(err, &exit) || exit.Code != 7 {
		t.Fatalf("the child ended with %v, want exit status 7", err)
	}
	var calls []string
	for _, s := range steps {
		calls = append(calls, s.Call)
	}
	want := []string{"mkdirat", "fsync", "renameat"}
	if len(calls) != len(want) {
		t.Fatalf("steps %v, want %v", calls, want)
	}
	for i := range want {
		if calls[i] != want[i] {
			t.Errorf("step %d is %s, want %s", i+1, calls[i], want[i])
		}
	}
}

func TestKillStopsOnTheAskedSide(t *testing.T) {
	for when, want := range map[killpoint.When]string{killpoint.Before: "new", killpoint.After: "final"} {
		t.Run(string(when)+" the rename", func(t *testing.T) {
			cmd, dir := command(t)
			reached, err := killpoint.Kill(cmd, 3, when, func(int, killpoint.Step) bool { return false })
			var exit *killpoint.ExitError
			if !reached || !errors.As(err, &exit) || exit.Signal != unix.SIGKILL {
				t.Fatalf("reached %v, ended with %v, want a kill", reached, err)
			}
			entries, err := os.ReadDir(filepath.Join(dir, "d"))
			if err != nil || len(entries) != 1 || entries[0].Name() != want {
				t.Errorf("the directory holds %v (%v), want %s alone", entries, err, want)
			}
		})
	}
}

func TestRunShowsWhatComesAfterTheBeginning(t *testing.T) {
	cmd, dir := command(t)
	gate := filepath.Join(dir, "gate")
	cmd.Env = append(cmd.Env, "KILLPOINT_GATE="+gate)
	seen := func(name string) bool { _, err := os.Stat(name); return err == nil }
	var calls []string
	opt := killpoint.Options{From: func() bool { return seen(filepath.Join(dir, "d")) }}
	err := opt.Run(cmd, func(_ int, s killpoint.Step, w killpoint.When) bool {
		if len(calls) == 0 { // it is watched now, so it may go on
			if s.N != 1 {
				t.Errorf("the first step has number %d", s.N)
			}
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
		if w == killpoint.Before {
			calls = append(calls, s.Call)
		}
		return true
	})
	var exit *killpoint.ExitError
	if !errors.As(err, &exit) || exit.Code != 7 {
		t.Fatalf("the child ended with %v, want exit status 7", err)
	}
	if n := len(calls); n < 2 || calls[n-2] != "fsync" || calls[n-1] != "renameat" {
		t.Errorf("steps %v, want them to end with fsync, renameat", calls)
	}
}

func TestMetadataIsShownWhenAsked(t *testing.T) {
	cmd, _ := command(t)
	cmd.Env = append(cmd.Env, "KILLPOINT_CHMOD=yes")
	var calls []string
	err := killpoint.Options{Metadata: true}.Run(cmd, func(_ int, s killpoint.Step, w killpoint.When) bool {
		calls = append(calls, string(w)+" "+s.Call)
		return s.Call != "fchmod" || w == killpoint.Before
	})
	var exit *killpoint.ExitError
	if !errors.As(err, &exit) || exit.Signal != unix.SIGKILL {
		t.Fatalf("the child ended with %v, want a kill", err)
	}
	want := []string{"before mkdirat", "after mkdirat", "before fchmod", "after fchmod"}
	if !slices.Equal(calls, want) {
		t.Errorf("steps %v, want %v", calls, want)
	}
}

func TestKillBeyondTheEndReachesNothing(t *testing.T) {
	cmd, _ := command(t)
	reached, err := killpoint.Kill(cmd, 99, killpoint.Before, func(int, killpoint.Step) bool { return false })
	var exit *killpoint.ExitError
	if reached || !errors.As(err, &exit) || exit.Code != 7 {
		t.Errorf("reached %v, ended with %v, want the child's own end", reached, err)
	}
}
