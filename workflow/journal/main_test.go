package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/states"
)

// A child of a test is this binary started again with a part to play.
const partVar = "JOURNAL_TEST_PART"

func TestMain(m *testing.M) {
	if part := os.Getenv(partVar); part != "" {
		if err := play(part, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	nstest.Main(m)
}

// child prepares a process that plays a part.
func child(t *testing.T, part string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), partVar+"="+part)
	cmd.Stderr = os.Stderr
	return cmd
}

func play(part string, args []string) error {
	ctx := context.Background()
	switch part {
	case "counter":
		return playCounter(ctx, args[0], args[1])
	case "die":
		return playDie(ctx, args[0], args[1])
	case "read":
		s, err := OpenReadOnly(ctx, args[0], Options{})
		if err != nil {
			return err
		}
		if n, err := s.VerifyChain(ctx); n != 3 || err != nil {
			return fmt.Errorf("chain of %d events: %w", n, err)
		}
		return s.Close()
	case "open":
		s, err := Open(ctx, args[0], Options{})
		if err != nil {
			return err
		}
		return s.Close()
	}
	return fmt.Errorf("no part %q", part)
}

// story is a life of an environment, one transaction after another; a crash may
// end it anywhere.
func story() []func(tx *Tx) error {
	move := func(to states.State) func(tx *Tx) error {
		return func(tx *Tx) error {
			e, err := tx.Env("edge")
			if err != nil {
				return err
			}
			now := e
			now.State = to
			if _, err := tx.MoveEnv(e, now); err != nil {
				return err
			}
			data, _ := json.Marshal(map[string]string{"to": string(to)})
			_, err = tx.Event(Event{Env: e.ID, Event: "state.moved", Data: data})
			return err
		}
	}
	return []func(tx *Tx) error{
		func(tx *Tx) error {
			if _, err := tx.CreateEnv(Env{ID: "01", Name: "edge", Backend: "linux", Base: "/"}); err != nil {
				return err
			}
			_, err := tx.Event(Event{Env: "01", Event: "state.moved", Data: []byte(`{"to":"created"}`)})
			return err
		},
		move(states.Staged), move(states.Exercised), move(states.Checked), move(states.Planned),
		func(tx *Tx) error {
			if err := tx.AddTxn(Txn{ID: "apply-1", Env: "01", Status: "prepared"}); err != nil {
				return err
			}
			return tx.MoveTxn("apply-1", "prepared", "armed", nil)
		},
		move(states.Trial), move(states.Committed),
	}
}

// consistent checks what every prefix of the story has in common: the state is
// what the last event says, its version counts the moves, and a transaction is
// never seen between two statuses.
func consistent(t *testing.T, s *Store) (moves int) {
	t.Helper()
	err := s.View(t.Context(), func(tx *Tx) error {
		if _, err := tx.VerifyChain(); err != nil {
			return err
		}
		es, err := tx.Events(EventFilter{})
		if err != nil {
			return err
		}
		moves = len(es)
		envs, err := tx.Envs()
		if err != nil {
			return err
		}
		if moves == 0 {
			if len(envs) != 0 {
				t.Errorf("%d environments without an event", len(envs))
			}
			return nil
		}
		if want := fmt.Sprintf(`{"to":%q}`, envs[0].State); string(es[moves-1].Data) != want || envs[0].Version != int64(moves) {
			t.Errorf("environment is %s at version %d, the last of %d events says %s", envs[0].State, envs[0].Version, moves, es[moves-1].Data)
		}
		xs, err := tx.Txns(TxnFilter{})
		for _, x := range xs {
			if x.Status != "armed" {
				t.Errorf("transaction is %s, which no commit left it in", x.Status)
			}
		}
		if st := envs[0].State; (st == states.Trial || st == states.Committed) != (moves > 5 && len(xs) == 1) {
			t.Errorf("%d transactions in state %s", len(xs), st)
		}
		return err
	})
	if err != nil {
		t.Errorf("inconsistent journal: %s", strings.TrimSpace(err.Error()))
	}
	return moves
}
