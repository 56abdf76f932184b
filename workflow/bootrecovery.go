package workflow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/lease/bootunit"
	"github.com/netsandbox/netsandbox/workflow/plan"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// The words of a plan for who undoes its trial after a reboot.
const (
	bootUnit   = "unit"
	bootNobody = "none"
)

// bootRecovery says who undoes a trial after a reboot; empty where the base is
// not the host and nobody has to.
func bootRecovery(base string) string {
	switch {
	case base != "/":
		return ""
	case bootunit.Present() == nil:
		return bootUnit
	}
	return bootNobody
}

// installRecovery puts the recovery unit in place, durably, before the trial
// that may need it: in one batch with the trial a power cut could keep the change
// and lose the unit. It is a transaction of its own, so it is in the history and
// can be rolled back like any other.
func (a *attempt) installRecovery(ctx context.Context) error {
	if bootRecovery(a.p.spec.Base) != bootUnit || a.o.NoBootRecovery {
		return nil
	}
	unit := bootunit.Unit{Exe: a.Exe, StateDir: a.Dir}
	there, err := unit.Installed("/")
	if err != nil || there {
		return err
	}
	text, err := unit.Text()
	if err != nil {
		return err
	}
	cs, err := a.unitChanges(ctx, []byte(text))
	if err != nil {
		return err
	}
	if b, err := a.Host.Preflight(ctx, cs); err != nil || len(b) > 0 {
		return hint(fmt.Errorf("install %s: %v: %w", bootunit.Path, b, err), "netsandbox apply %s --yes --no-boot-recovery", a.p.env.Name)
	}
	if err := a.applyAlone(ctx, cs, literal(text)); err != nil {
		return fmt.Errorf("install %s: %w", bootunit.Path, err)
	}
	a.o.say("Installed %s", bootunit.Path)
	return nil
}

// unitChanges are the unit, the link that enables it, and the link's directory
// where it is missing.
func (a *attempt) unitChanges(ctx context.Context, text []byte) ([]change.Change, error) {
	sum := sha256.Sum256(text)
	want := map[change.Path]*change.Entry{
		bootunit.Path: {Type: change.Regular, Mode: 0o644, Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])},
		bootunit.Link: {Type: change.Symlink, Mode: 0o777, Target: "../" + bootunit.Name},
	}
	dir := change.Path(filepath.Dir(bootunit.Link))
	paths := []change.Path{dir, bootunit.Link, bootunit.Path}
	old, err := a.Host.Observe(ctx, paths)
	if err != nil {
		return nil, err
	}
	if old[0] == nil {
		want[dir] = &change.Entry{Type: change.Directory, Mode: 0o755}
	}
	var cs []change.Change
	for i, p := range paths {
		if want[p] == nil || want[p].Same(old[i]) {
			continue
		}
		c := change.Change{Kind: change.KindFile, Op: change.Added, Path: p, Old: old[i], New: want[p]}
		if old[i] != nil {
			c.Op = change.Modified
			if old[i].Type != want[p].Type {
				c.Op = change.Replaced
			}
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// applyAlone applies changes that cut nothing and need no trial. A crash in the
// middle is undone by recover.
func (a *attempt) applyAlone(ctx context.Context, cs []change.Change, wanted backends.Wanted) error {
	now, err := a.Clock()
	if err != nil {
		return err
	}
	id := txn.NewID(now.At)
	// Cycle 0 is no cycle of the environment: the row moves no state.
	row := journal.Txn{ID: id, Env: a.p.env.ID, Status: string(txn.Prepared), Path: filepath.Join(a.Dir, txnsDir, id), Instant: now}
	if err := a.store.Update(ctx, func(tx *journal.Tx) error { return tx.AddTxn(row) }); err != nil {
		return err
	}
	t, err := txn.Create(filepath.Join(a.Dir, txnsDir), txn.Header{
		ID: id, Env: a.p.env.Name, EnvID: a.p.env.ID, HostID: a.hostID(), BootID: now.BootID, UID: uint32(os.Geteuid()), Created: now.At,
	})
	if err != nil {
		return err
	}
	defer t.Close()
	err = t.Prepare(ctx, a.Host, cs)
	if err == nil {
		err = t.Stage(ctx, a.Host, wanted)
	}
	if err == nil {
		err = t.Swap(ctx, a.Host)
	}
	if err == nil {
		err = t.Commit(txn.Applier, "boot recovery for a trial")
	}
	if err == nil {
		err = t.Clean(ctx, a.Host)
	} else if t.Verdict() == nil {
		_, uerr := t.Undo(context.WithoutCancel(ctx), a.Host, txn.Applier, err.Error())
		err = errors.Join(err, uerr)
	}
	return errors.Join(err, a.reindex(context.WithoutCancel(ctx), row, t))
}

// literal is wanted content that is not in a plan's store.
type literal string

func (l literal) Open(string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader([]byte(l))), nil
}

var (
	_ backends.Wanted = literal("")
	_ backends.Wanted = (*plan.Frozen)(nil)
)
