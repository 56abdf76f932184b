package workflow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/workflow/lease"
	"github.com/netsandbox/netsandbox/workflow/lease/bootunit"
	"github.com/netsandbox/netsandbox/workflow/statedir"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// keeperLog is where the keeper writes, in the transaction's directory.
const keeperLog = "keeper.log"

// applySlack is what a confirmed trial may take besides the waiting itself
// before the keeper ends it whatever the applier says.
const applySlack = 2 * time.Minute

// watch starts the keeper and waits until it has confirmed.
func (a *attempt) watch(ctx context.Context) error {
	log, err := statedir.OpenFile(filepath.Join(a.txn.Dir(), keeperLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open keeper log: %w", err)
	}
	defer log.Close()
	cfg := lease.Config{
		TxnPath: a.txn.File(), Exe: a.Exe, Log: log, Files: a.host.Files(),
		Args: []string{"--state-dir", a.Dir, a.txn.Dir()},
	}
	if a.o.ConfirmWithin > 0 {
		now, err := a.Clock()
		if err != nil {
			return err
		}
		cfg.ConfirmBy = now.Boottime + a.o.ConfirmWithin + applySlack
	}
	if a.lease, err = lease.Arm(ctx, cfg); err != nil {
		return fmt.Errorf("arm the lease: %w", err)
	}
	start, err := startTime(a.lease.PID())
	if err != nil {
		return fmt.Errorf("record the keeper: %w", err)
	}
	return a.txn.Arm(txn.Keeper{PID: a.lease.PID(), Start: start})
}

// leaseFact says whether a reboot would find somebody to undo.
func (w *Workflow) leaseFact(p place, waived bool) guards.Lease {
	return guards.Lease{BootRequired: p.spec.Base == "/", BootPresent: bootunit.Present() == nil, BootWaived: waived}
}
