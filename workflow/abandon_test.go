package workflow

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/fake"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/clock"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// The journal's commit of the move to Trial can report an error although it took
// effect. The attempt is given up then, and the environment must not stay in a
// trial that has no transaction.
func TestAttemptGivenUpAfterItsMoveTookEffectLeavesNoTrial(t *testing.T) {
	ctx := context.Background()
	host := &fake.Host{}
	host.Put("/etc/a", "one")
	w := &Workflow{Options: Options{Dir: t.TempDir(), Clock: clock.Now, Log: zerolog.Nop(), Host: host}}
	for _, dir := range []string{txnsDir, filepath.Join(envsDir, "e")} {
		must(t, os.MkdirAll(filepath.Join(w.Dir, dir), 0o700))
	}
	var err error
	w.store, err = journal.Open(ctx, w.Dir, journal.Options{})
	must(t, err)
	t.Cleanup(func() { w.Close() })
	must(t, execlog.Gate(w.envDir("e"), execlog.Open))

	p := place{spec: backends.Spec{Name: "e", ID: "01J", Dir: w.envDir("e")}}
	must(t, w.store.Update(ctx, func(tx *journal.Tx) error {
		env, err := tx.CreateEnv(journal.Env{ID: "01J", Name: "e", Backend: "fake", Base: "/", Policy: obj, Spec: obj, Facts: obj})
		if err != nil {
			return err
		}
		now := env
		now.State = states.Authorized
		p.env, err = tx.MoveEnv(env, now)
		return err
	}))
	t1, err := txn.Create(filepath.Join(w.Dir, txnsDir), txn.Header{Env: "e", EnvID: "01J", Cycle: int64(p.env.Cycle)})
	must(t, err)
	defer t1.Close()
	must(t, t1.Prepare(ctx, host, []change.Change{{
		Kind: change.KindFile, Op: change.Modified, Path: "/etc/a", Old: fake.Entry("one"), New: fake.Entry("two"),
	}}))
	// What begin writes, whose answer got lost: p still says Authorized.
	must(t, execlog.Gate(p.spec.Dir, execlog.Trial+" "+t1.ID()))
	must(t, w.store.Update(ctx, func(tx *journal.Tx) error {
		if err := tx.AddTxn(journal.Txn{ID: t1.ID(), Env: "01J", Cycle: p.env.Cycle, Status: string(txn.Armed), Path: t1.Dir(), Detail: obj}); err != nil {
			return err
		}
		now := p.env
		now.State = states.Trial
		_, err := tx.MoveEnv(p.env, now)
		return err
	}))

	a := &attempt{Workflow: w, p: &p, txn: t1, facts: guards.Facts{Env: "e"}}
	must(t, a.abandon(ctx))
	must(t, w.store.View(ctx, func(tx *journal.Tx) error {
		env, err := tx.Env("e")
		if err != nil {
			return err
		}
		row, err := tx.Txn(t1.ID())
		if env.State != states.RolledBack || row.Status != string(txn.Undone) {
			t.Errorf("environment is %s, transaction %s; want rolledback and undone", env.State, row.Status)
		}
		return err
	}))
	if shut, err := execlog.Shut(p.spec.Dir); shut || err != nil {
		t.Errorf("gate shut: %v, %v", shut, err)
	}
	if a.doc.State != states.RolledBack {
		t.Errorf("the report says %s", a.doc.State)
	}
}

var obj = json.RawMessage("{}")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
