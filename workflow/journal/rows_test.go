package journal

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards/authority"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/clock"
)

// steady is a clock that advances one second a reading.
func steady() clock.Func {
	now := clock.Instant{BootID: "boot", At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	return func() (clock.Instant, error) {
		now.Boottime += time.Second
		now.At = now.At.Add(time.Second)
		return now, nil
	}
}

// scratch is an open journal in a directory of its own.
func scratch(t *testing.T) *Store {
	t.Helper()
	return reopen(t, t.TempDir())
}

func reopen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, Options{Clock: steady()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// update runs fn in a transaction that must succeed.
func update(t *testing.T, s *Store, fn func(tx *Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func env(t *testing.T, s *Store, name string) (e Env) {
	t.Helper()
	update(t, s, func(tx *Tx) (err error) {
		e, err = tx.CreateEnv(Env{ID: "01" + name, Name: name, UID: 1000, GID: 100, Backend: "linux", Base: "/", Spec: json.RawMessage(`{"a": 1}`)})
		return err
	})
	return e
}

func TestEnvironmentRoundTrip(t *testing.T) {
	dir := t.TempDir()
	s := reopen(t, dir)
	want := env(t, s, "edge")
	s.Close()
	var got Env
	err := reopen(t, dir).View(t.Context(), func(tx *Tx) (err error) {
		got, err = tx.Env("edge")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("after reopening (-want +got):\n%s", d)
	}
	if got.State != states.Created || got.Version != 1 || got.Cycle != 1 {
		t.Errorf("a new environment is %s, version %d, cycle %d", got.State, got.Version, got.Cycle)
	}
}

func TestNameIsUniqueAmongTheLiving(t *testing.T) {
	s := scratch(t)
	e := env(t, s, "edge")
	again := Env{ID: "02", Name: "edge", Backend: "linux", Base: "/"}
	err := s.Update(t.Context(), func(tx *Tx) error { _, err := tx.CreateEnv(again); return err })
	if !errors.Is(err, ErrExists) {
		t.Fatalf("second environment of a live name: %v, want ErrExists", err)
	}
	update(t, s, func(tx *Tx) error { return tx.Tombstone(e) })
	update(t, s, func(tx *Tx) error { _, err := tx.CreateEnv(again); return err })
	err = s.View(t.Context(), func(tx *Tx) error {
		live, err := tx.Env("edge")
		if err != nil || live.ID != "02" {
			t.Errorf("live environment is %q (%v), want 02", live.ID, err)
		}
		ended, err := tx.EndedEnvs()
		if err != nil || len(ended) != 1 || ended[0].ID != e.ID || ended[0].Tombstone.IsZero() {
			t.Errorf("ended environments: %+v (%v)", ended, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMoveEnvComparesBeforeItSets(t *testing.T) {
	s := scratch(t)
	e := env(t, s, "edge")
	staged := e
	staged.State, staged.Layer, staged.ExecFolded = states.Staged, "sha256:1", 7
	var moved Env
	update(t, s, func(tx *Tx) (err error) {
		moved, err = tx.MoveEnv(e, staged)
		return err
	})
	staged.Version = 2
	if d := cmp.Diff(staged, moved); d != "" {
		t.Errorf("moved environment (-want +got):\n%s", d)
	}
	other := e
	other.State = states.Exercised
	err := s.Update(t.Context(), func(tx *Tx) error { _, err := tx.MoveEnv(e, other); return err })
	if !errors.Is(err, ErrMoved) {
		t.Errorf("move from a stale reading: %v, want ErrMoved", err)
	}
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.Tombstone(e) }); !errors.Is(err, ErrMoved) {
		t.Errorf("tombstone from a stale reading: %v, want ErrMoved", err)
	}
	renamed := moved
	renamed.Name = "other"
	if err := s.Update(t.Context(), func(tx *Tx) error { _, err := tx.MoveEnv(moved, renamed); return err }); err == nil {
		t.Error("a move renamed the environment")
	}
	update(t, s, func(tx *Tx) error {
		got, err := tx.Env("edge")
		if d := cmp.Diff(moved, got); d != "" {
			t.Errorf("stored environment (-want +got):\n%s", d)
		}
		return err
	})
}

func TestEndedEnvironmentNeverMoves(t *testing.T) {
	s := scratch(t)
	e := env(t, s, "edge")
	update(t, s, func(tx *Tx) error { return tx.Tombstone(e) })
	err := s.Update(t.Context(), func(tx *Tx) error {
		_, err := tx.exec(`UPDATE environments SET state = 'staged' WHERE id = ?`, e.ID)
		return err
	})
	if err == nil {
		t.Error("the state of an ended environment was changed")
	}
}

func TestCircuits(t *testing.T) {
	s := scratch(t)
	e := env(t, s, "edge")
	api := circuit.Definition{ID: "c1", Label: "api", Kind: circuit.Canary, Required: true, Argv: []string{"curl", "x"}, UID: 1000}
	update(t, s, func(tx *Tx) error { return tx.AddCircuit(e.ID, api) })
	twin := api
	twin.ID = "c2"
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.AddCircuit(e.ID, twin) }); !errors.Is(err, ErrExists) {
		t.Errorf("second circuit of a label: %v, want ErrExists", err)
	}
	update(t, s, func(tx *Tx) error {
		for _, name := range []string{"c1", "api"} {
			c, err := tx.Circuit(e.ID, name)
			if d := cmp.Diff(api, c.Definition); d != "" || err != nil {
				t.Errorf("circuit %s (%v) (-want +got):\n%s", name, err, d)
			}
		}
		ignored := api
		ignored.Required = false
		if err := tx.SetCircuit(e.ID, ignored); err != nil {
			return err
		}
		cs, err := tx.Circuits(e.ID)
		if len(cs) != 1 || cs[0].Required {
			t.Errorf("circuits after ignore: %+v", cs)
		}
		return err
	})
	update(t, s, func(tx *Tx) error { return tx.RemoveCircuit(e.ID, "c1") })
	update(t, s, func(tx *Tx) error {
		if _, err := tx.Circuit(e.ID, "api"); !errors.Is(err, ErrNotFound) {
			t.Errorf("removed circuit: %v, want ErrNotFound", err)
		}
		return tx.AddCircuit(e.ID, api) // the same id and label again
	})
}

func TestLatestObservationsAreOfTheLayerAndPurpose(t *testing.T) {
	s := scratch(t)
	e := env(t, s, "edge")
	add := func(c, purpose, layer string, r circuit.Result) {
		update(t, s, func(tx *Tx) error {
			return tx.AddObservation(Observation{Env: e.ID, Purpose: purpose, Observation: circuit.Observation{Circuit: c, Layer: layer, Result: r, Sensitive: true}})
		})
	}
	add("c1", "check", "old", circuit.Preserved)
	add("c1", "check", "new", circuit.Preserved)
	add("c1", "check", "new", circuit.Lost)
	add("c1", "trial", "new", circuit.Preserved)
	add("c2", "check", "new", circuit.New)
	update(t, s, func(tx *Tx) error {
		got := map[string]circuit.Result{}
		latest, err := tx.LatestObservations(e.ID, "check", "new")
		for id, o := range latest {
			got[id] = o.Result
			if o.BootID != "boot" || o.Boottime == 0 || !o.Sensitive {
				t.Errorf("observation of %s came back as %+v", id, o)
			}
		}
		if d := cmp.Diff(map[string]circuit.Result{"c1": circuit.Lost, "c2": circuit.New}, got); d != "" {
			t.Errorf("latest (-want +got):\n%s", d)
		}
		return err
	})
}

func TestFirstOriginWins(t *testing.T) {
	s := scratch(t)
	e := env(t, s, "edge")
	update(t, s, func(tx *Tx) error {
		for _, data := range []string{`{"n":1}`, `{"n":2}`} {
			if err := tx.AddOrigin(Origin{Env: e.ID, Kind: "file", Key: "/etc/hosts", Data: json.RawMessage(data)}); err != nil {
				return err
			}
		}
		os, err := tx.Origins(e.ID, "file")
		if len(os) != 1 || string(os[0].Data) != `{"n":1}` {
			t.Errorf("origins: %+v", os)
		}
		return err
	})
}

func TestGrantIsForOneTrial(t *testing.T) {
	s := scratch(t)
	e := env(t, s, "edge")
	put := func(id string) {
		update(t, s, func(tx *Tx) error {
			return tx.PutGrant(e.ID, authority.Grant{ID: id, Plan: "sha256:1", Cycle: 1, Level: authority.Root, BootID: "boot", Expires: time.Minute})
		})
	}
	last := func() (g Grant) {
		update(t, s, func(tx *Tx) (err error) { g, err = tx.LastGrant(e.ID); return err })
		return g
	}
	use := func(id string) error {
		return s.Update(t.Context(), func(tx *Tx) error { return tx.UseGrant(id, "apply-1") })
	}
	put("g1")
	if g := last(); g.Used || g.Revoked || g.Expires != time.Minute || g.Level != authority.Root {
		t.Errorf("new grant: %+v", g)
	}
	put("g2")
	if err := use("g1"); !errors.Is(err, ErrMoved) {
		t.Errorf("use of a replaced grant: %v, want ErrMoved", err)
	}
	if err := use("g2"); err != nil {
		t.Fatal(err)
	}
	if err := use("g2"); !errors.Is(err, ErrMoved) {
		t.Errorf("second use: %v, want ErrMoved", err)
	}
	if g := last(); !g.Used || g.UsedBy != "apply-1" {
		t.Errorf("used grant: %+v", g)
	}
}

func TestTransactionsMoveByComparison(t *testing.T) {
	s := scratch(t)
	e := env(t, s, "edge")
	update(t, s, func(tx *Tx) error {
		for _, id := range []string{"apply-1", "apply-2"} {
			if err := tx.AddTxn(Txn{ID: id, Env: e.ID, Cycle: 1, Plan: "sha256:1", Grant: "g", Status: "prepared", Path: "/x/" + id}); err != nil {
				return err
			}
		}
		return tx.MoveTxn("apply-2", "prepared", "armed", json.RawMessage(`{"keeper":7}`))
	})
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.MoveTxn("apply-2", "prepared", "undone", nil) }); !errors.Is(err, ErrMoved) {
		t.Errorf("move from a status it has not: %v, want ErrMoved", err)
	}
	update(t, s, func(tx *Tx) error { return tx.MoveTxn("apply-2", "armed", "applying", nil) })
	update(t, s, func(tx *Tx) error { return tx.Tombstone(e) }) // transactions outlive their environment
	update(t, s, func(tx *Tx) error {
		xs, err := tx.Txns(TxnFilter{Env: e.ID})
		if len(xs) != 2 || xs[0].ID != "apply-2" || xs[0].EnvName != "edge" || string(xs[0].Detail) != `{"keeper":7}` || xs[0].Status != "applying" {
			t.Errorf("transactions, newest first: %+v", xs)
		}
		open, err2 := tx.Txns(TxnFilter{Status: []string{"prepared", "armed"}})
		if len(open) != 1 || open[0].ID != "apply-1" {
			t.Errorf("prepared or armed: %+v", open)
		}
		return errors.Join(err, err2)
	})
}

func TestResourcesAreListedUntilGone(t *testing.T) {
	s := scratch(t)
	var a, b int64
	update(t, s, func(tx *Tx) (err error) {
		if a, err = tx.Intend("", backends.Resource{Kind: "cgroup", Name: "one"}); err != nil {
			return err
		}
		b, err = tx.Intend("01", backends.Resource{Kind: "process", Name: "two"})
		return err
	})
	update(t, s, func(tx *Tx) error { return tx.MadeResource(b, "pid 7") })
	update(t, s, func(tx *Tx) error { return tx.GoneResource(a) })
	update(t, s, func(tx *Tx) error {
		rs, err := tx.Resources("")
		if len(rs) != 1 || rs[0].Status != Made || rs[0].Data != "pid 7" || rs[0].Env != "01" {
			t.Errorf("live resources: %+v", rs)
		}
		return err
	})
	if err := s.Update(context.Background(), func(tx *Tx) error { return tx.MadeResource(a, "") }); !errors.Is(err, ErrMoved) {
		t.Errorf("a resource came back from gone: %v", err)
	}
}

func TestLastPlanOfTheCycle(t *testing.T) {
	s := scratch(t)
	e := env(t, s, "edge")
	update(t, s, func(tx *Tx) error {
		for _, p := range []Plan{{Cycle: 1, Digest: "a"}, {Cycle: 1, Digest: "b"}, {Cycle: 1, Digest: "a"}, {Cycle: 2, Digest: "c"}} {
			p.Env = e.ID
			if err := tx.PutPlan(p); err != nil {
				return err
			}
		}
		p, err := tx.LastPlan(e.ID, 1)
		if p.Digest != "a" || p.Seq != 3 {
			t.Errorf("last plan of cycle 1: %+v", p)
		}
		if _, err := tx.LastPlan(e.ID, 9); !errors.Is(err, ErrNotFound) {
			t.Errorf("plan of a cycle that has none: %v, want ErrNotFound", err)
		}
		return err
	})
}
