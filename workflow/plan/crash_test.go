package plan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/netsandbox/netsandbox/backends/change"
)

// freezeAndDie is the child of the test below: it freezes the sample plan and
// kills itself at the step that the environment names. Opening a wanted file
// counts as a step too.
func freezeAndDie(state string) {
	at, _ := strconv.Atoi(os.Getenv("PLAN_TEST_STEP"))
	n := 0
	step := func(string) {
		if n++; n == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
	}
	TestOnlyStep = step
	layer := os.Getenv("PLAN_TEST_LAYER")
	open := func(p change.Path) (*os.File, error) {
		step("open")
		return os.Open(layer + string(p))
	}
	if err := NewStore(state).Freeze(context.Background(), sample(), open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(n)
	os.Exit(0)
}

// Killed at each step that a whole run takes, the store either has the plan
// whole or does not have it, and freezing again always works.
func TestFreezeCrash(t *testing.T) {
	layer := t.TempDir()
	must(t, os.Mkdir(layer+"/etc", 0o700))
	must(t, os.WriteFile(layer+"/etc/a", []byte("new a"), 0o600))
	must(t, os.WriteFile(layer+"/etc/b", []byte("new b"), 0o600))
	run := func(state string, step int) (string, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "PLAN_TEST_FREEZE="+state, "PLAN_TEST_LAYER="+layer, fmt.Sprint("PLAN_TEST_STEP=", step))
		out, err := cmd.Output()
		return string(out), err
	}
	for _, damaged := range []bool{false, true} {
		prepare := func() string {
			state := t.TempDir()
			if damaged {
				s := NewStore(state)
				must(t, s.Freeze(t.Context(), sample(), func(p change.Path) (*os.File, error) { return os.Open(layer + string(p)) }))
				dir, err := s.Path(sample().Digest())
				must(t, err)
				must(t, os.Remove(dir+"/blobs/"+hashOf("new a")))
			}
			return state
		}
		out, err := run(prepare(), 0)
		must(t, err)
		steps, err := strconv.Atoi(out)
		must(t, err)
		if steps < 8 {
			t.Fatalf("a whole run took %d steps", steps)
		}
		t.Logf("damaged before: %v: %d steps", damaged, steps)
		for i := 1; i <= steps; i++ {
			state := prepare()
			var exit *exec.ExitError
			if _, err := run(state, i); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("step %d: the child ended with %v", i, err)
			}
			s := NewStore(state)
			f, err := s.Open(sample().Digest())
			switch {
			case err == nil:
				must(t, f.Verify(t.Context()))
			case !errors.Is(err, ErrNotFound) && !(damaged && errors.Is(err, ErrDamaged)):
				t.Errorf("step %d: open: %v", i, err)
			}
			if out, err := run(state, 0); err != nil {
				t.Errorf("step %d: freezing again: %v %s", i, err, out)
			}
			f, err = s.Open(sample().Digest())
			must(t, err)
			must(t, f.Verify(t.Context()))
			onlyPublished(t, s)
		}
	}
}
