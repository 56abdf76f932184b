package text

import (
	"time"

	"github.com/netsandbox/netsandbox/workflow/report"
)

func (b *page) plan(d report.Plan) {
	b.line("Plan: %s", d.Digest)
	b.line("  environment %s, cycle %d, base %s", d.Name, d.Cycle, d.Base)
	b.table("", indent(changeRows(d.Changes)))
	b.list("As commands", d.Commands)
	if len(d.Circuits) > 0 {
		b.line("Circuits:")
		b.circuitTable(d.Circuits)
	}
	b.policy(d.Policy)
	b.list("Weakened", d.Weakened)
	b.list("Processes that will end", d.Processes)
	b.list("Cannot be undone", d.Irreversible)
	b.list("Notes", d.Notes)
	b.line("Next: netsandbox apply %s --yes", d.Name)
}

func (b *page) policy(p report.Policy) {
	undo := "a failed circuit undoes the change"
	if !p.AutoRollback {
		undo = "a failed circuit keeps the change"
	}
	b.line("Policy: on failure %s; %s; authority %s", p.OnFailure, undo, p.Authority)
}

func (b *page) grant(d report.Grant) {
	b.line("Authorized: %s", d.Plan)
	b.line("  grant %s by %s (%s) until %s", d.ID, d.By, d.How, instant(d.Until))
	b.line("Next: netsandbox apply %s --yes --plan %s", d.Name, d.Plan)
}

func (b *page) dryRun(d report.DryRun) {
	b.table("", changeRows(d.Changes))
	b.blockers(d.Blockers)
	b.refusals(d.Refusals)
	steps := ""
	for i, s := range d.Steps {
		if i > 0 {
			steps += ", "
		}
		steps += string(s)
	}
	if steps != "" {
		b.line("Steps: %s", steps)
	}
	if d.Would {
		b.line("%s: would apply %s; nothing was changed", d.Name, count(len(d.Changes), "change"))
		return
	}
	b.line("%s: would not apply; nothing was changed", d.Name)
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
