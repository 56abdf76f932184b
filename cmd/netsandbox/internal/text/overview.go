package text

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/report"
)

func (b *page) environments(es []report.Environment) {
	if len(es) == 0 {
		b.line("no environments")
		return
	}
	rows := make([][]string, len(es))
	for i, e := range es {
		rows[i] = []string{e.Name, string(e.State), strconv.FormatUint(uint64(e.Owner), 10), e.Base, instant(e.Created), e.Description}
	}
	b.table("NAME STATE OWNER BASE CREATED DESCRIPTION", rows)
}

func (b *page) status(d report.Status) {
	b.line("%s: %s (cycle %d)", d.Name, d.State, d.Cycle)
	if d.Description != "" {
		b.line("  %s", d.Description)
	}
	b.line("  base %s, owner %d, backend %s, isolation %s", d.Base, d.Owner, d.Backend, orDash(d.View.Mode))
	b.view(d.View)
	if d.Evidence == nil {
		b.line("  evidence: none for this layer")
	} else {
		b.line("  evidence: %s old", age(d.Evidence))
	}
	if d.Txn != nil {
		b.line("  transaction %s: %s%s", d.Txn.ID, d.Txn.Status, because(d.Txn.Reason))
		if d.Txn.Keeper != 0 {
			b.line("  keeper: pid %d", d.Txn.Keeper)
		}
	}
	for _, n := range d.Notes {
		b.line("  note: %s", n)
	}
	b.circuitTable(d.Circuits)
	switch {
	case d.Next != nil:
		b.next(*d.Next)
	case d.State == states.Created || d.State == states.Committed:
		b.line("Next: netsandbox exec %s -- COMMAND", d.Name)
	case d.State == states.Trial && d.Txn != nil:
		b.line("Next: netsandbox wait %s", d.Txn.ID)
	}
}

func (b *page) view(v backends.Status) {
	switch {
	case v.TwinLost:
		b.line("  view: the network twin is lost")
	case v.Holder == 0:
		b.line("  view: not running")
	case v.Init == 0:
		b.line("  view: idle (holder pid %d)", v.Holder)
	default:
		b.line("  view: running (holder pid %d, %s)", v.Holder, processes(len(v.Processes)))
	}
	for _, p := range v.Processes {
		b.line("    pid %d %s", p.PID, p.Comm)
	}
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

func (b *page) next(n report.Next) {
	b.line("Next: %s -> %s", n.On, n.To)
	for _, g := range n.Guards {
		b.line("  %s %s%s", b.mark(g.Holds), string(g.Guard), reason(g))
		if g.Refusal != nil && g.Refusal.Fix != "" {
			b.line("      fix: %s", g.Refusal.Fix)
		}
	}
	b.line("  %s", n.Command)
}

func reason(g report.GuardLine) string {
	if g.Refusal == nil {
		return ""
	}
	r := *g.Refusal
	r.Guard = ""
	return r.String() // begins with the separator: ": reason"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (b *page) inspect(d report.Inspect) {
	b.status(d.Status)
	b.policy(d.Policy)
	b.line("Id: %s", d.Spec.ID)
	b.line("Directory: %s", d.Spec.Dir)
	if d.Plan != nil {
		b.line("Plan: %s (%s)", d.Plan.Digest, count(len(d.Plan.Changes), "change"))
		b.table("", indent(changeRows(d.Plan.Changes)))
	}
	rows := make([][]string, len(d.Grants))
	for i, g := range d.Grants {
		rows[i] = []string{g.ID, g.By, g.How, grantState(g), instant(g.Until), g.Plan}
	}
	b.table("GRANT BY HOW STATE UNTIL PLAN", rows)
	if len(d.Transactions) > 0 {
		b.history(d.Transactions)
	}
	rows = make([][]string, len(d.Resources))
	for i, r := range d.Resources {
		rows[i] = []string{r.Kind, r.Name, r.Status}
	}
	b.table("RESOURCE NAME STATUS", rows)
	b.covers(d.Covers, d.CoverNotes)
	for _, n := range d.Status.View.Notes {
		b.line("twin: %s", n)
	}
}

func (b *page) covers(cs []backends.Cover, notes []string) {
	rows := make([][]string, len(cs))
	for i, c := range cs {
		rows[i] = []string{c.Path, c.How, c.Why}
	}
	b.table("COVERED HOW WHY", rows)
	for _, n := range notes {
		b.line("note: %s", n)
	}
}

func grantState(g report.Grant) string {
	switch {
	case g.Revoked:
		return "revoked"
	case g.Used:
		return "used"
	default:
		return "recorded"
	}
}

func (b *page) event(e report.Event) {
	parts := []string{instant(e.At), e.Event}
	for _, f := range [][2]string{{"env", e.Env}, {"txn", e.Txn}} {
		if f[1] != "" {
			parts = append(parts, f[0]+"="+f[1])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(e.Data)) {
		parts = append(parts, k+"="+value(e.Data[k]))
	}
	b.line("%s", strings.Join(parts, " "))
}

// value renders one field; words stand bare, the rest as JSON.
func value(v any) string {
	if s, ok := v.(string); ok && s != "" && !strings.ContainsAny(s, " \t\n\"") {
		return s
	}
	j, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(j)
}

func (b *page) doctor(d report.Doctor) {
	for _, f := range d.Findings {
		b.line("%s %s: %s%s", b.mark(f.Status == "ok"), f.Name, f.Status, because(f.Detail))
		if f.Fix != "" {
			b.line("    fix: %s", f.Fix)
		}
	}
	if d.Ready {
		b.line("This machine can run netsandbox.")
		return
	}
	b.line("This machine cannot run netsandbox as it is.")
}
