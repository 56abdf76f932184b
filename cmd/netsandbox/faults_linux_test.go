package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/nstest/faultfs"
)

// afterRecord is the phase that begins when the transaction's file has a record.
func afterRecord(kind string) phase {
	return phase{"after " + kind, func(w *faultWorld) bool { return w.last() == kind }}
}

// amid is a point among the renames that follow a record: none of them is done,
// some are, all are.
func amid(kind, part string) phase {
	return phase{kind + " " + part, func(w *faultWorld) bool {
		if w.last() != kind {
			return false
		}
		from, to := w.before, w.after
		if kind == "revert" {
			from, to = to, from
		}
		now := w.tree()
		switch part {
		case "first":
			return same(now, from)
		case "last":
			return same(now, to)
		}
		return !same(now, from) && !same(now, to)
	}}
}

func same(a, b []string) bool { return slices.Equal(a, b) }

// applyPhases are the phases of an apply from the recorded plan on.
var applyPhases = []phase{
	{"before the transaction", func(w *faultWorld) bool { return w.last() == "none" }},
	{"transaction file", func(w *faultWorld) bool { return w.last() == "" }},
	afterRecord("header"),  // prepare
	afterRecord("prepare"), // the keeper is started
	afterRecord("armed"),   // staging and backup
	{"staging", func(w *faultWorld) bool { return w.last() == "armed" && len(w.hidden()) > 0 }},
	afterRecord("staged"),
	amid("swap", "first"), amid("swap", "middle"), amid("swap", "last"),
	afterRecord("swapped"), // verify, circuits, verdict
	afterRecord("verdict"), // clean, the layer, the journal
}

// rollbackPhases are the phases of the rollback of a committed transaction.
var rollbackPhases = []phase{
	afterRecord("clean"),
	amid("revert", "first"), amid("revert", "middle"), amid("revert", "last"),
	afterRecord("undone"),
}

// diskFault is what a disk does from some moment on.
type diskFault struct {
	name   string
	strike func(t *testing.T, fs *faultfs.FS) (mend func())
}

func nothing() {}

var diskFaults = []diskFault{
	{"writes fail", func(_ *testing.T, fs *faultfs.FS) func() { fs.Fail(faultfs.Write); return nothing }},
	{"flushes fail", func(_ *testing.T, fs *faultfs.FS) func() { fs.Fail(faultfs.Flush); return nothing }},
	{"full", func(t *testing.T, fs *faultfs.FS) func() { return faultfs.Fill(t, fs.Dir) }},
	{"read-only", func(_ *testing.T, fs *faultfs.FS) func() { fs.ReadOnly(); return nothing }},
}

// TestDiskFaultInEveryPhase lets a disk fail in each phase of a real apply and of
// a real rollback: that of the host's files or that of the state directory by
// turns, with FAULTS_ALL in the environment both. What is said then is true after
// a power cut, the host is before or after, and recover ends it when the disk is
// well again.
func TestDiskFaultInEveryPhase(t *testing.T) {
	w := newFaultWorld(t, faultfs.Ext4)
	combinations, all := 0, os.Getenv("FAULTS_ALL") != ""
	for i, f := range diskFaults {
		for n, p := range slices.Concat(applyPhases, rollbackPhases) {
			// What stands hidden before there is a transaction is none of the host's.
			early, odd := n < 4, (i+n)%2 == 1
			if all || !early && odd {
				combinations++
				w.strike(f, w.host, p, n >= len(applyPhases))
			}
			if all || early || !odd {
				combinations++
				w.strike(f, w.disk, p, n >= len(applyPhases))
			}
		}
	}
	count(t, fmt.Sprintf("disk faults: %d combinations of phase, fault and disk", combinations))
}

// strike is one combination.
func (w *faultWorld) strike(f diskFault, side *faultfs.FS, p phase, rollback bool) {
	w.t.Helper()
	w.fresh()
	args := []string{"apply", w.name, "--yes"}
	if rollback {
		w.must(args...)
		args = []string{"rollback", w.settled().ID, "--yes"}
	}
	mend := nothing
	e := w.struck(p, func() bool { mend = f.strike(w.t, side); return true }, args...)
	w.unwatched()
	wrong := w.during(e, side, rollback)
	w.reboot()
	mend()
	last := w.settled()
	wrong = append(wrong, w.judge(e, last.Status, rollback)...)
	if last.Status == "committed" {
		w.patiently("rollback", last.ID, "--yes")
	}
	if left := w.hidden(); len(left) > 0 {
		wrong = append(wrong, fmt.Sprintf("left hidden: %v", left))
	}
	if diff := cmp.Diff(w.before, w.tree()); diff != "" {
		w.t.Fatalf("the host is not as before (-want +got):\n%s", diff)
	}
	w.must("discard", w.name, "--yes")
	if len(wrong) > 0 {
		disk := map[*faultfs.FS]string{w.host: "host", w.disk: "state"}[side]
		w.t.Errorf("%s, %s of the %s, %s:\n%s\nexit status %d: %s", args[0], f.name, disk, p.name, strings.Join(wrong, "\n"), e.exit, e.text)
	}
}

// during demands of the host, while the fault goes on, what the exit status says.
func (w *faultWorld) during(e ended, side *faultfs.FS, rollback bool) (wrong []string) {
	from, to := w.before, w.after
	if rollback {
		from, to = to, from
	}
	now := w.tree()
	switch isFrom, isTo := same(now, from), same(now, to); {
	case !isFrom && !isTo && (e.exit != exitIncomplete || side == w.disk):
		wrong = append(wrong, fmt.Sprintf("the host is a mixture (-before +now):\n%s", cmp.Diff(from, now)))
	case e.exit == exitDone && !isTo:
		wrong = append(wrong, "it said done and is not")
	case slices.Contains([]int{exitFailed, exitBlocked, exitUndone}, e.exit) && !isFrom:
		wrong = append(wrong, "the host was changed")
	}
	return wrong
}

// judge compares the host after recovery with what was said.
func (w *faultWorld) judge(e ended, status string, rollback bool) (wrong []string) {
	now := w.tree()
	committed := status == "committed"
	switch {
	case !same(now, w.before) && !same(now, w.after):
		return []string{fmt.Sprintf("recovered, the host is a mixture (-before +now):\n%s", cmp.Diff(w.before, now))}
	case committed != same(now, w.after):
		wrong = append(wrong, "the transaction is "+status+", the host is not")
	}
	switch e.exit {
	case exitDone:
		if committed == rollback {
			wrong = append(wrong, "it said done, the transaction is "+status)
		}
	case exitFailed, exitBlocked, exitUndone:
		if committed != rollback {
			wrong = append(wrong, "it said that nothing changed, the transaction is "+status)
		}
	case exitIncomplete:
	default:
		wrong = append(wrong, "no exit status for a fault")
	}
	if e.exit != exitDone && !diskWords.MatchString(e.text) {
		wrong = append(wrong, "it does not say that a disk is at fault")
	}
	if e.exit == exitIncomplete && !strings.Contains(e.text, "netsandbox recover") {
		wrong = append(wrong, "it does not say how to go on")
	}
	return wrong
}

// diskWords are how kernel and SQLite name what is the matter with a disk.
var diskWords = regexp.MustCompile(`input/output error|no space|read-only|disk is full|disk I/O error|readonly database`)
