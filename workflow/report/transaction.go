package report

import (
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
)

// Grant is recorded authority.
type Grant struct {
	Schema  string    `json:"schema"` // netsandbox/v1/grant
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Plan    string    `json:"plan"`
	By      string    `json:"by"`
	How     string    `json:"how"`
	At      time.Time `json:"at"`
	Until   time.Time `json:"until"`
	Used    bool      `json:"used"`
	Revoked bool      `json:"revoked"`
}

// Transaction is one line of history.
type Transaction struct {
	Schema  string        `json:"schema"` // netsandbox/v1/transaction
	ID      string        `json:"id"`
	Env     string        `json:"env"`
	Cycle   int           `json:"cycle"`
	Plan    string        `json:"plan"`
	Status  string        `json:"status"` // prepared, armed, applying, trial, committed, undone, incomplete
	Verdict string        `json:"verdict,omitempty"`
	By      string        `json:"by,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Begun   time.Time     `json:"begun"`
	Ended   *time.Time    `json:"ended,omitempty"`
	Keeper  int           `json:"keeper,omitempty"` // pid, while it watches
	Paths   []change.Path `json:"paths,omitempty"`
	// Pruned: its originals were given up, so it cannot be rolled back.
	Pruned bool `json:"pruned,omitempty"`
}

// Pruned is the result of history --prune.
type Pruned struct {
	Schema       string      `json:"schema"` // netsandbox/v1/pruned
	Transactions []PrunedTxn `json:"transactions"`
	Plans        int         `json:"plans"` // frozen plans that nothing needed
	FreedBytes   int64       `json:"freed_bytes"`
	Kept         []KeptTxn   `json:"kept"`
}

// PrunedTxn is one transaction whose originals were given up.
type PrunedTxn struct {
	ID         string        `json:"id"`
	Env        string        `json:"env"`
	Status     string        `json:"status"`
	FreedBytes int64         `json:"freed_bytes"`
	Paths      []change.Path `json:"paths"`
	Reversible bool          `json:"reversible"` // it can still be rolled back
}

// KeptTxn is one that was not to be touched.
type KeptTxn struct {
	ID  string `json:"id"`
	Env string `json:"env"`
	Why string `json:"why"`
}

// Applied is the result of apply, commit, rollback and wait.
type Applied struct {
	Schema    string       `json:"schema"` // netsandbox/v1/applied
	Name      string       `json:"name"`
	Txn       string       `json:"txn"`
	State     states.State `json:"state"`
	Outcome   string       `json:"outcome"` // committed, rolled_back, incomplete, already_committed, already_rolled_back
	Reason    string       `json:"reason,omitempty"`
	Refreshed int          `json:"refreshed"` // circuits refreshed right before
	Changes   int          `json:"changes"`
	Circuits  []Circuit    `json:"circuits,omitempty"` // as seen on the host
	// OutageMS is the time in which a required circuit did not answer: from the
	// swap to the verified undo. Zero when nothing was cut.
	OutageMS float64             `json:"outage_ms,omitempty"`
	Refusals []guards.Refusal    `json:"refusals,omitempty"`
	Left     []backends.Leftover `json:"left,omitempty"`
	Warnings []string            `json:"warnings,omitempty"`
}

// Recovered is the result of recover.
type Recovered struct {
	Schema string              `json:"schema"` // netsandbox/v1/recovered
	Done   []Recovery          `json:"done"`
	Swept  []string            `json:"swept"`
	Left   []backends.Leftover `json:"left"`
	// Busy are transactions that living processes are at, which were left to them.
	Busy []string `json:"busy,omitempty"`
}

// Recovery is what became of one transaction.
type Recovery struct {
	Txn     string `json:"txn"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
}
