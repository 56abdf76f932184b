package workflow

import (
	"context"
	"encoding/json"
	"time"

	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// EventsOptions select events.
type EventsOptions struct {
	Name  string // environment, also one that has ended; empty is all
	Since time.Time
	After int64 // sequence number of the last event already seen
}

// Events returns the journal in the order things happened.
func (w *Workflow) Events(ctx context.Context, o EventsOptions) ([]report.Event, error) {
	out := []report.Event{}
	if w.store == nil {
		return out, nil
	}
	var id string
	if o.Name != "" {
		p, err := w.find(ctx, o.Name)
		if err != nil {
			return out, err
		}
		id = p.env.ID
	}
	return out, w.store.View(ctx, func(tx *journal.Tx) error {
		es, err := tx.Events(journal.EventFilter{Env: id, After: o.After, Since: o.Since})
		if err != nil {
			return err
		}
		names, err := envNames(tx)
		if err != nil {
			return err
		}
		for _, e := range es {
			d := report.Event{Schema: report.Schema("event"), Seq: e.Seq, At: e.At, Event: e.Event, Env: names[e.Env], Txn: e.Txn}
			if err := json.Unmarshal(e.Data, &d.Data); err != nil {
				return err
			}
			out = append(out, d)
		}
		return nil
	})
}

// envNames maps ids to names, of ended environments too.
func envNames(tx *journal.Tx) (map[string]string, error) {
	live, err := tx.Envs()
	if err != nil {
		return nil, err
	}
	ended, err := tx.EndedEnvs()
	if err != nil {
		return nil, err
	}
	names := make(map[string]string)
	for _, e := range append(live, ended...) {
		names[e.ID] = e.Name
	}
	return names, nil
}

// History returns every transaction, newest first.
func (w *Workflow) History(ctx context.Context) ([]report.Transaction, error) {
	out := []report.Transaction{}
	if w.store == nil {
		return out, nil
	}
	return out, w.store.View(ctx, func(tx *journal.Tx) error {
		txns, err := tx.Txns(journal.TxnFilter{})
		for _, t := range txns {
			out = append(out, txnDoc(t))
		}
		return err
	})
}
