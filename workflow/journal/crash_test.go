package journal

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// playDie lives the story, creation of the journal first, and kills itself at the n-th point of it.
func playDie(ctx context.Context, dir, n string) error {
	left, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	s, err := Open(ctx, dir, Options{trace: func(string) {
		if left--; left == 0 {
			syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
			select {}
		}
	}})
	if err != nil {
		return err
	}
	for _, chapter := range story() {
		if err := s.Update(ctx, chapter); err != nil {
			return err
		}
	}
	return s.Close()
}

func TestKillBetweenAnyTwoStatementsLeavesAConsistentJournal(t *testing.T) {
	ended := false
	seen := map[int]bool{}
	for n := 1; !ended; n++ {
		if n > 1000 {
			t.Fatal("the story does not end")
		}
		dir := t.TempDir()
		err := child(t, "die", dir, strconv.Itoa(n)).Run()
		var exit *exec.ExitError
		switch {
		case err == nil:
			ended = true
			t.Logf("killed at each of %d points", n-1)
		case !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL:
			t.Fatalf("child at point %d: %v", n, err)
		}
		s, err := Open(t.Context(), dir, Options{})
		if err != nil {
			t.Fatalf("open after a kill at point %d: %v", n, err)
		}
		seen[consistent(t, s)] = true
		if t.Failed() {
			t.Fatalf("at point %d", n)
		}
		s.Close()
	}
	// Every chapter that moves was reached and lost at least once.
	for moves := range 8 {
		if !seen[moves] {
			t.Errorf("no kill left %d moves", moves)
		}
	}
}
