package text

import (
	"fmt"
	"strings"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/workflow/report"
)

func (b *page) applied(d report.Applied) {
	if len(d.Circuits) > 0 {
		b.line("Circuits on the host:")
		b.circuitTable(d.Circuits)
	}
	for _, w := range d.Warnings {
		b.line("warning: %s", w)
	}
	reason := ""
	if d.Reason != "" {
		reason = ": " + d.Reason
	}
	switch strings.TrimPrefix(d.Outcome, "already_") {
	case "committed":
		b.line("%s%s: %s on the host (%s)", already(d.Outcome), "Committed", isAre(d.Changes), d.Txn)
		b.line("  undo with: netsandbox rollback %s --yes", d.Txn)
	case "rolled_back":
		b.line("%sRolled back%s (%s)", already(d.Outcome), reason, d.Txn)
	case "incomplete":
		b.line("Rolled back incompletely%s (%s)", reason, d.Txn)
	default:
		b.line("%s: %s%s", d.Txn, d.Outcome, reason)
	}
	if d.OutageMS > 0 {
		b.line("  measured outage: %s", outage(d.OutageMS))
	}
	b.left(d.Left)
}

func already(outcome string) string {
	if strings.HasPrefix(outcome, "already_") {
		return "Already: "
	}
	return ""
}

func isAre(n int) string {
	if n == 1 {
		return "1 change is"
	}
	return fmt.Sprintf("%d changes are", n)
}

// outage renders milliseconds so that a short cut is not rounded away.
func outage(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Millisecond).String()
}

// left names what an undo could not put back, and how to finish.
func (b *page) left(ls []backends.Leftover) {
	for _, l := range ls {
		b.line("%s %s: found %s, wanted %s", b.mark(false), l.Subject, l.Found, l.Wanted)
		if l.Fix != "" {
			b.line("    fix: %s", l.Fix)
		}
	}
}

func (b *page) history(ts []report.Transaction) {
	if len(ts) == 0 {
		b.line("no transactions")
		return
	}
	rows := make([][]string, len(ts))
	for i, t := range ts {
		status := t.Status
		if t.Pruned {
			status += ", pruned"
		}
		rows[i] = []string{t.ID, t.Env, status, instant(t.Begun), paths(t.Paths), short(t.Reason)}
	}
	b.table("TRANSACTION ENVIRONMENT STATUS BEGUN PATHS REASON", rows)
}

func (b *page) pruned(d report.Pruned) {
	rows := make([][]string, len(d.Transactions))
	for i, t := range d.Transactions {
		rows[i] = []string{t.ID, t.Env, t.Status, size(t.FreedBytes), paths(t.Paths)}
	}
	b.table("PRUNED ENVIRONMENT STATUS FREED PATHS", rows)
	for _, k := range d.Kept {
		b.line("kept %s (%s): %s", k.ID, k.Env, k.Why)
	}
	switch {
	case len(d.Transactions) > 0 && d.Transactions[0].Reversible:
		b.line("Freed %s beside the files; a rollback goes by the copies in the state directory", size(d.FreedBytes))
	case len(d.Transactions) > 0:
		b.line("Freed %s: the backups of %s and %s; what was committed stays so", size(d.FreedBytes), count(len(d.Transactions), "transaction"), count(d.Plans, "plan"))
	case d.Plans > 0:
		b.line("Freed %s: %s", size(d.FreedBytes), count(d.Plans, "plan"))
	default:
		b.line("nothing to prune")
	}
}

// size renders bytes as a person would say them.
func size(n int64) string {
	if n < 1024 {
		return count(int(n), "byte")
	}
	f, unit := float64(n)/1024, 0
	for f >= 1024 && unit < 3 {
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[unit])
}

// paths shows the first of many.
func paths(ps []change.Path) string {
	switch len(ps) {
	case 0:
		return ""
	case 1:
		return short(ps[0].String())
	default:
		return fmt.Sprintf("%s and %d more", short(ps[0].String()), len(ps)-1)
	}
}

func (b *page) recovered(d report.Recovered) {
	for _, r := range d.Done {
		b.line("%s: %s%s", r.Txn, strings.ReplaceAll(r.Outcome, "_", " "), because(r.Reason))
	}
	for _, s := range d.Swept {
		b.line("swept: %s", s)
	}
	b.left(d.Left)
	for _, id := range d.Busy {
		b.line("%s: left to the processes that are at it: netsandbox wait %s", id, id)
	}
	if len(d.Done)+len(d.Swept)+len(d.Left)+len(d.Busy) == 0 {
		b.line("nothing to recover")
	}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func (b *page) moved(d report.Moved) {
	switch {
	case d.On == "discard" || d.On == "remove": // no moves of the machine: the environment ended
		b.line("Deleted environment '%s'", d.Name)
	case d.From == d.To:
		b.line("%s: stays %s", d.Name, d.To)
	default:
		b.line("%s: %s -> %s", d.Name, d.From, d.To)
	}
	if d.Note != "" {
		b.line("  %s", d.Note)
	}
}

func (b *page) advanced(ds []report.Moved) {
	for _, d := range ds {
		b.line("%s: %s -> %s (%s)", d.Name, d.From, d.To, d.On)
		if d.Note != "" {
			b.line("  %s", d.Note)
		}
	}
	if len(ds) == 0 {
		b.line("nothing to do")
	}
}
