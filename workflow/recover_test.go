package workflow

import (
	"errors"
	"testing"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// The hint to accept what is left must name the transaction that left it, not
// one that was recovered without trouble before it.
func TestIncompleteRecoveryNamesTheTransactionThatLeftSomething(t *testing.T) {
	for _, tt := range []struct {
		name string
		done []report.Recovery
		want string
	}{
		{"nothing to do", nil, ""},
		{"all undone", []report.Recovery{{Txn: "a", Outcome: "undone"}, {Txn: "b", Outcome: "committed"}}, ""},
		{"behind one that was undone", []report.Recovery{{Txn: "a", Outcome: "undone"}, {Txn: "b", Outcome: "incomplete"}}, "b"},
		{"the oldest of two", []report.Recovery{{Txn: "a", Outcome: "incomplete"}, {Txn: "b", Outcome: "incomplete"}}, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := incomplete(report.Recovered{Done: tt.done, Left: []backends.Leftover{{Subject: "/etc/x"}}})
			var left *IncompleteError
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("%v, want none", err)
			case tt.want != "" && (!errors.As(err, &left) || left.Txn != tt.want || len(left.Left) != 1):
				t.Errorf("%v, want the leftovers of %s", err, tt.want)
			}
		})
	}
}
