package workflow

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
	"github.com/netsandbox/netsandbox/workflow/txn"
)

// confirmFile is where a confirmation is left for the applier, in the
// transaction's directory.
const confirmFile = "confirmed"

// txnDetail is what the index of a transaction knows besides its status.
type txnDetail struct {
	// Nonce is the SHA-256 of what confirm must carry; the nonce itself is only
	// printed.
	Nonce string `json:"nonce_sha256,omitempty"`
	// Applier says which process, session and connection ran apply: a
	// confirmation from any of them proves nothing about getting in anew.
	PID        int    `json:"pid"`
	Session    int    `json:"session"`
	Connection string `json:"connection,omitempty"`
}

// detail describes this process, and makes a nonce when one is wanted.
func (a *attempt) detail() (json.RawMessage, error) {
	d := txnDetail{PID: os.Getpid(), Session: sessionID(os.Getpid()), Connection: os.Getenv("SSH_CONNECTION")}
	if a.o.ConfirmWithin > 0 {
		a.nonce = rand.Text()[:12]
		d.Nonce = hashNonce(a.nonce)
	}
	return json.Marshal(d)
}

func hashNonce(n string) string {
	h := sha256.Sum256([]byte(n))
	return hex.EncodeToString(h[:])
}

// confirmed waits for a human's word over another connection.
func (a *attempt) confirmed(ctx context.Context) error {
	if a.o.ConfirmWithin <= 0 {
		return nil
	}
	a.o.say("Confirm within %s, over another connection: netsandbox confirm %s %s", a.o.ConfirmWithin, a.txn.ID(), a.nonce)
	path := filepath.Join(a.txn.Dir(), confirmFile)
	deadline := time.Now().Add(a.o.ConfirmWithin)
	err := a.watched(ctx, func(ctx context.Context) error {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for time.Now().Before(deadline) {
			if _, err := os.Lstat(path); err == nil {
				a.facts.Trial.Confirmed = true
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
		return nil // the guard says that nobody confirmed
	})
	return err
}

// Confirm says "I can still get in". It is refused from the process tree, the
// terminal session and the connection that ran apply: those existed before the
// change and prove nothing.
func (w *Workflow) Confirm(ctx context.Context, id, nonce string) (report.Applied, error) {
	doc := report.Applied{Schema: report.Schema("applied"), Txn: id, Circuits: []report.Circuit{}}
	row, err := w.row(ctx, id)
	if err != nil {
		return doc, err
	}
	doc.Name = row.EnvName
	t, err := txn.Open(row.Path)
	if err != nil {
		return doc, err
	}
	defer t.Close()
	if t.Verdict() != nil {
		describe(&doc, t)
		doc.Outcome = "already_" + doc.Outcome
		return doc, nil
	}
	var d txnDetail
	if err := json.Unmarshal(row.Detail, &d); err != nil {
		return doc, fmt.Errorf("transaction %s: %w: detail: %w", id, journal.ErrCorrupt, err)
	}
	if d.Nonce == "" {
		return doc, fmt.Errorf("transaction %s does not wait for a confirmation", id)
	}
	if subtle.ConstantTimeCompare([]byte(d.Nonce), []byte(hashNonce(nonce))) != 1 {
		return doc, fmt.Errorf("transaction %s: the nonce is not the one that apply printed", id)
	}
	if why := related(d); why != "" {
		return doc, hint(fmt.Errorf("transaction %s: a confirmation from %s proves nothing", id, why), "confirm from a connection made after the change")
	}
	if err := renameio.WriteFile(filepath.Join(row.Path, confirmFile), []byte(actor()+"\n"), 0o600); err != nil {
		return doc, fmt.Errorf("confirm %s: %w", id, err)
	}
	err = w.store.Update(ctx, func(tx *journal.Tx) error {
		return w.event(tx, row.Env, id, EventTrialConfirmed, map[string]any{"by": actor()})
	})
	if err != nil {
		return doc, err
	}
	return w.Wait(ctx, id)
}

// related says what this process shares with the one that ran apply.
func related(d txnDetail) string {
	if c := os.Getenv("SSH_CONNECTION"); c != "" && c == d.Connection {
		return "the connection that ran apply"
	}
	if sessionID(os.Getpid()) == d.Session {
		return "the terminal session that ran apply"
	}
	for pid := os.Getpid(); pid > 1; {
		if pid == d.PID {
			return "the process tree that ran apply"
		}
		_, ppid, err := process(pid)
		if err != nil {
			return "a process whose ancestors cannot be read"
		}
		pid = ppid
	}
	return ""
}

// Wait returns when a transaction is decided: nil when it was committed,
// [UndoneError] or [IncompleteError] otherwise.
func (w *Workflow) Wait(ctx context.Context, id string) (report.Applied, error) {
	doc := report.Applied{Schema: report.Schema("applied"), Txn: id, Circuits: []report.Circuit{}}
	row, err := w.row(ctx, id)
	if err != nil {
		return doc, err
	}
	doc.Name = row.EnvName
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		t, err := txn.Open(row.Path)
		if err != nil {
			return doc, err
		}
		status := t.Status()
		describe(&doc, t)
		finished := t.Finished()
		err = t.Close()
		switch {
		case err != nil:
			return doc, err
		case status == txn.Committed:
			return doc, nil
		case status == txn.Undone:
			return doc, &UndoneError{Txn: id, Reason: doc.Reason}
		case status == txn.Incomplete && (finished || len(doc.Left) > 0):
			return doc, &IncompleteError{Txn: id, Left: doc.Left}
		}
		select {
		case <-ctx.Done():
			return doc, errors.Join(ErrBusy, ctx.Err())
		case <-tick.C:
		}
	}
}

// describe fills in how a transaction stands.
func describe(doc *report.Applied, t *txn.Txn) {
	doc.Changes = len(t.Steps())
	doc.Left, _ = t.Leftovers()
	if v := last(t); v != nil {
		doc.Reason = v.Reason
	}
	doc.Outcome, doc.State = outcome(t), stateAfter(t.Status())
}

// stateAfter is where a transaction leaves, or holds, its environment.
func stateAfter(s txn.Status) states.State {
	switch s {
	case txn.Committed:
		return states.Committed
	case txn.Undone:
		return states.RolledBack
	default:
		return states.Trial
	}
}

// outcome is the documented word for how a transaction stands.
func outcome(t *txn.Txn) string {
	switch t.Status() {
	case txn.Committed:
		return "committed"
	case txn.Undone:
		return "rolled_back"
	case txn.Incomplete:
		return "incomplete"
	}
	return string(t.Status())
}
