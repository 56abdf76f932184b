package journal

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/states"
)

// playCounter moves the environment n times, each time from what it read in an
// earlier transaction, and starts over when somebody was faster.
func playCounter(ctx context.Context, dir, n string) error {
	want, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	s, err := Open(ctx, dir, Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	for done := 0; done < want; {
		switch err := increment(ctx, s); {
		case err == nil:
			done++
		case !errors.Is(err, ErrMoved):
			return err
		}
	}
	return nil
}

func increment(ctx context.Context, s *Store) error {
	var e Env
	if err := s.View(ctx, func(tx *Tx) (err error) { e, err = tx.Env("edge"); return err }); err != nil {
		return err
	}
	now := e
	now.ExecFolded++
	now.State = states.Exercised
	return s.Update(ctx, func(tx *Tx) error {
		if _, err := tx.MoveEnv(e, now); err != nil {
			return err
		}
		_, err := tx.Event(Event{Env: e.ID, Event: "state.moved"})
		return err
	})
}

func TestTwoProcessesNeverLoseAMove(t *testing.T) {
	dir := t.TempDir()
	s := reopen(t, dir)
	env(t, s, "edge")
	const each = 60
	cmds := []*exec.Cmd{child(t, "counter", dir, strconv.Itoa(each)), child(t, "counter", dir, strconv.Itoa(each))}
	for _, c := range cmds {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range cmds {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	update(t, s, func(tx *Tx) error {
		e, err := tx.Env("edge")
		if e.ExecFolded != 2*each || e.Version != 2*each+1 {
			t.Errorf("%d moves by two processes left %d at version %d", 2*each, e.ExecFolded, e.Version)
		}
		if n, err := tx.VerifyChain(); n != 2*each || err != nil {
			t.Errorf("chain of %d events: %v", n, err)
		}
		return err
	})
}

func TestConcurrentWritersOfOneProcessAllCommit(t *testing.T) {
	s := scratch(t)
	s.opt.Clock = Options{}.filled().Clock // the test clock is not for many goroutines
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for w := range 8 {
		wg.Go(func() {
			for n := range 20 {
				if err := s.Update(t.Context(), func(tx *Tx) error {
					_, err := tx.Event(Event{Event: "exec.started", Actor: fmt.Sprintf("writer %d.%d", w, n)})
					return err
				}); err != nil {
					errs <- err
					return
				}
				if err := s.View(t.Context(), func(tx *Tx) error { _, err := tx.Events(EventFilter{Limit: 1}); return err }); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if n, err := s.VerifyChain(t.Context()); n != 160 || err != nil {
		t.Errorf("chain of %d events: %v", n, err)
	}
}

func TestUpdateGivesUpWhenTheWriterIsStuck(t *testing.T) {
	dir := t.TempDir()
	holder, waiter := reopen(t, dir), reopen(t, dir)
	waiter.opt.Wait = 10 * time.Millisecond
	update(t, holder, func(*Tx) error {
		err := waiter.Update(t.Context(), func(*Tx) error { t.Error("entered beside another writer"); return nil })
		if !errors.Is(err, ErrBusy) {
			t.Errorf("update beside another writer: %v, want ErrBusy", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := waiter.Update(ctx, func(*Tx) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("update with a cancelled context: %v", err)
		}
		return waiter.View(t.Context(), func(tx *Tx) error { _, err := tx.Envs(); return err })
	})
}

func TestFailedUpdateLeavesNothing(t *testing.T) {
	s := scratch(t)
	boom := errors.New("boom")
	err := s.Update(t.Context(), func(tx *Tx) error {
		if _, err := tx.Event(Event{Event: "plan.made"}); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("update: %v", err)
	}
	if n, err := s.VerifyChain(t.Context()); n != 0 || err != nil {
		t.Errorf("%d events after a rollback (%v)", n, err)
	}
}
