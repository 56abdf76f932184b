package text

import (
	"fmt"
	"time"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/workflow/report"
)

func (b *page) check(d report.Check) {
	b.circuitTable(d.Circuits)
	b.refusals(d.Refusals)
	switch {
	case d.From != d.To:
		b.line("%s: %s -> %s", d.Name, d.From, d.To)
	case d.OK && d.Note != "":
		b.line("%s: every required circuit is preserved; stays %s: %s", d.Name, d.To, d.Note)
	case d.OK:
		b.line("%s: every required circuit is preserved; stays %s", d.Name, d.To)
	default:
		b.line("%s: stays %s", d.Name, d.To)
	}
	for _, n := range d.Notes {
		b.line("  note: %s", n)
	}
}

func (b *page) circuits(d report.Circuits) {
	if len(d.Circuits) == 0 {
		b.line("%s: no circuits", d.Name)
		b.line("Next: netsandbox circuit add %s LABEL -- COMMAND", d.Name)
		return
	}
	b.circuitTable(d.Circuits)
}

func (b *page) circuitTable(cs []report.Circuit) {
	rows := make([][]string, len(cs))
	for i, c := range cs {
		required := "required"
		if !c.Required {
			required = "optional"
		}
		rows[i] = []string{c.ID, c.Label, string(c.Kind), required, short(exercise(c)), short(c.Baseline), string(c.Result), age(c.AgeS), short(c.Reason)}
	}
	b.table("ID CIRCUIT KIND POLICY PROBE BASELINE CANDIDATE AGE REASON", rows)
}

// exercise says what a circuit does, without arguments: they may hold secrets.
func exercise(c report.Circuit) string {
	s := c.Address
	if len(c.Argv) > 0 {
		s = fmt.Sprintf("%s (%s)", c.Argv[0], count(len(c.Argv)-1, "argument"))
	}
	if c.Interface != "" {
		s += "@" + c.Interface
	}
	return s
}

// age renders seconds as a person would say them.
func age(s *float64) string {
	if s == nil {
		return ""
	}
	d := time.Duration(*s * float64(time.Second))
	if d < time.Minute {
		return fmt.Sprintf("%ds", int(d.Seconds()))
	}
	return d.Truncate(time.Second).String()
}

func (b *page) refusals(rs []guards.Refusal) {
	for _, r := range rs {
		b.line("%s %s", b.mark(false), r)
		if r.Fix != "" {
			b.line("    fix: %s", r.Fix)
		}
	}
}
