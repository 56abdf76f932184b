package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

var refused = &workflow.RefusedError{
	Env: "edge", From: states.Checked, On: states.Plan,
	Refusals: []guards.Refusal{{Guard: states.CircuitsFresh, Reason: "too old"}, {Guard: states.TwinPresent, Reason: "lost", Fix: "netsandbox reset edge --network"}},
}

func TestExitCodes(t *testing.T) {
	undone := &workflow.UndoneError{Txn: "apply-1", Reason: "a circuit is lost"}
	incomplete := &workflow.IncompleteError{Txn: "apply-1", Left: []backends.Leftover{{Subject: "/etc/x"}}}
	live := context.Background()
	cancelled, cancel := context.WithCancel(live)
	cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		err  error
		want int
	}{
		{"nothing went wrong", live, nil, 0},
		{"nothing went wrong before the interrupt", cancelled, nil, 0},
		{"anything else", live, errors.New("disk on fire"), 1},
		{"a refusal", live, fmt.Errorf("wrapped: %w", refused), 2},
		{"a check whose answer is no", live, verdict(report.Check{Name: "edge"}), 2},
		{"processes in the way", live, backends.ErrBusyView, 2},
		{"undone", live, undone, 3},
		{"undone because of the interrupt", cancelled, undone, 3},
		{"incomplete", live, incomplete, 4},
		{"incomplete after undone", live, errors.Join(undone, incomplete), 4},
		{"incomplete and interrupted", cancelled, incomplete, 4},
		{"wrong usage here", live, usageHint(errors.New("no"), "do"), 64},
		{"wrong usage there", live, fmt.Errorf("%w: no", workflow.ErrUsage), 64},
		{"an impossible name", live, workflow.ErrInvalidName, 64},
		{"a busy environment", live, fmt.Errorf("%w: edge", workflow.ErrBusy), 75},
		{"a busy journal", live, journal.ErrBusy, 75},
		{"interrupted", cancelled, errors.New("check: context canceled"), 130},
		{"a command's own status", live, &childError{code: 7}, 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := exitCode(tc.ctx, tc.err); got != tc.want {
				t.Errorf("exit code %d, want %d", got, tc.want)
			}
		})
	}
}

func TestErrorsArePrintedOnceOnTheirLine(t *testing.T) {
	var out, errs bytes.Buffer
	a := &app{streams: streams{out: &out, err: &errs}, json: true}
	if code := a.report(context.Background(), errors.Join(refused, errors.New("and\x1b[2Jmore"))); code != 2 {
		t.Errorf("exit code %d", code)
	}
	want := "netsandbox: edge: cannot plan from checked: circuits-fresh: too old; twin-present: lost; and\\x1b[2Jmore\n" +
		"netsandbox: hint: netsandbox reset edge --network\n"
	if errs.String() != want {
		t.Errorf("stderr %q, want %q", errs.String(), want)
	}
	var doc report.Error
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || doc.Exit != 2 || len(doc.Refusals) != 2 {
		t.Errorf("document %+v, %v", doc, err)
	}
}

func TestAResultIsTheOnlyDocument(t *testing.T) {
	var out, errs bytes.Buffer
	a := &app{streams: streams{out: &out, err: &errs}, json: true}
	a.out = a.newRenderer()
	err := a.applied(report.Applied{Schema: report.Schema("applied"), Txn: "apply-1", Outcome: "rolled_back", Reason: "lost", OutageMS: 412}, nil)
	if code := a.report(context.Background(), err); code != 3 {
		t.Errorf("exit code %d", code)
	}
	if n := strings.Count(out.String(), `"schema"`); n != 1 {
		t.Errorf("%d documents:\n%s", n, out.String())
	}
	if !strings.Contains(errs.String(), "apply-1 was rolled back: lost (outage 412ms)") {
		t.Errorf("stderr %q", errs.String())
	}
}
