package workflow

import (
	"encoding/json"
	"fmt"

	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/plan"
	"github.com/netsandbox/netsandbox/workflow/report"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// txnDoc renders the index of a transaction, with what its file adds.
func txnDoc(row journal.Txn) report.Transaction {
	d := report.Transaction{
		Schema: report.Schema("transaction"), ID: row.ID, Env: row.EnvName, Cycle: row.Cycle, Plan: row.Plan,
		Status: row.Status, Begun: row.At,
	}
	t, err := txn.Open(row.Path)
	if err != nil {
		d.Reason = err.Error()
		return d
	}
	defer t.Close()
	// The file is the truth; the row may lag behind a keeper's undo.
	d.Status, d.Paths, d.Pruned = string(t.Status()), paths(t), t.Forgotten()
	v := last(t)
	if v != nil {
		at := v.At
		d.Verdict, d.By, d.Reason, d.Ended = string(v.Decision), string(v.By), v.Reason, &at
	}
	if k := t.Keeper(); k != nil && v == nil {
		if start, err := startTime(k.PID); err == nil && start == k.Start {
			d.Keeper = k.PID
		}
	}
	return d
}

// hostID names this machine in plans; empty when nothing names it.
func (w *Workflow) hostID() string {
	id, err := plan.HostID(w.Dir)
	if err != nil {
		w.Log.Warn().Err(err).Msg("host.unnamed")
		return ""
	}
	return id
}

// weakening reads an event as a line of the plan's list of what was made less
// strict.
func weakening(e journal.Event) (string, bool) {
	var d struct {
		Label    string `json:"label"`
		Weakened bool   `json:"weakened"`
	}
	if json.Unmarshal(e.Data, &d) != nil || !d.Weakened {
		return "", false
	}
	word := "ignored"
	if e.Event == EventCircuitRemoved {
		word = "removed"
	}
	return fmt.Sprintf("circuit %s %s by %s", d.Label, word, e.Actor), true
}
