package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/backends/hostfiles"
	"github.com/netsandbox/netsandbox/workflow"
	"github.com/netsandbox/netsandbox/workflow/lease"
	"github.com/netsandbox/netsandbox/workflow/plan"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// newKeepCmd is the keeper: the other process of a trial, started by apply and by
// nobody else. It is no verb; without the descriptors it was promised it ends.
func newKeepCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         lease.Command + " DIR",
		Short:       "Watch a trial and undo it unless it is decided in time",
		Hidden:      true,
		Args:        cobra.ExactArgs(1),
		Annotations: exits(),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Its stderr is the transaction's own log, kept with the transaction.
			k := keeping{app: a, dir: args[0], log: zerolog.New(a.err).With().Timestamp().Logger()}
			return lease.Keep(cmd.Context(), lease.FD, lease.KeepConfig{
				Undo: k.undo, Decided: k.decided, Probe: k.probe(), Settle: k.settle, Log: k.log,
			})
		},
	}
}

// keeping is the keeper's side that knows transactions and journals.
type keeping struct {
	*app
	dir string // of the transaction
	log zerolog.Logger
}

// undo takes the transaction back, or finishes it where it was committed. It
// works from the transaction's file alone: the journal may be what is broken.
func (k keeping) undo(ctx context.Context, reason lease.Reason) (err error) {
	t, err := txn.Open(k.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if err := t.Lock(ctx); err != nil {
		return err
	}
	host := hostfiles.New("/")
	left, err := t.Undo(ctx, host, txn.Watcher, inWords(reason))
	if errors.Is(err, txn.ErrCommitted) {
		err = t.Clean(ctx, host)
	}
	k.log.Info().Str("reason", string(reason)).Str("txn", t.ID()).Int("left", len(left)).AnErr("err", err).Msg("change.reverted")
	return err
}

// inWords is a reason for people, who read it in history.
func inWords(r lease.Reason) string {
	switch r {
	case lease.ApplierDied:
		return "the applier died"
	case lease.Lapsed:
		return "the lease lapsed: the applier stopped renewing it"
	case lease.Overdue:
		return "nobody confirmed the trial in time"
	case lease.Broken:
		return "the host was cut off and the applier did not undo it"
	case lease.Undecided:
		return "the applier let go without a verdict"
	}
	return string(r)
}

// decided reports whether the transaction's file holds a verdict.
func (k keeping) decided() (bool, error) {
	t, err := txn.Open(k.dir)
	if err != nil {
		return false, err
	}
	return t.Verdict() != nil, t.Close()
}

// settle brings the journal up to date, which every opening for change does.
func (k keeping) settle() error {
	ctx := context.Background() // the keeper's own was made from signals that it ignores
	o, err := k.options()
	if err != nil {
		return err
	}
	w, err := workflow.Open(ctx, o)
	if err != nil {
		return fmt.Errorf("settle the journal: %w", err)
	}
	return w.Close()
}

// probe returns the built-in probes of the plan that is tried, or nil where
// there are none, or where a failed circuit is to be kept.
func (k keeping) probe() func(context.Context) error {
	p, err := k.frozen()
	if err != nil {
		k.log.Warn().Err(err).Msg("keeper.blind") // the applier still judges; only the quick look is missing
		return nil
	}
	if !p.Policy.AutoRollback || p.Policy.OnFailure != workflow.BlockApply {
		return nil
	}
	return dials(p.Circuits)
}

func (k keeping) frozen() (*plan.Plan, error) {
	t, err := txn.Open(k.dir)
	if err != nil {
		return nil, err
	}
	digest := t.Header().Plan
	if err := t.Close(); err != nil {
		return nil, err
	}
	f, err := plan.NewStore(k.stateDir).Open(digest)
	if err != nil {
		return nil, err
	}
	return f.Plan, nil
}
