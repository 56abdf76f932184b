package text

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/netsandbox/netsandbox/workflow/report"
)

// Printer renders documents to W.
type Printer struct {
	W     io.Writer
	Color bool
}

// Print renders one document. A list of documents is one table. An unknown type
// is a bug of the caller's and says so.
func (p Printer) Print(doc any) error {
	b := &page{color: p.Color}
	if !b.document(doc) {
		return fmt.Errorf("render %T: no text form", doc)
	}
	_, err := io.WriteString(p.W, b.String())
	return err
}

// document renders doc and reports whether it knows the type.
func (b *page) document(doc any) bool {
	switch d := doc.(type) {
	case report.Created:
		b.created(d)
	case report.Staged:
		b.staged(d)
	case report.Changes:
		b.changes(d)
	case report.Diff:
		b.diff(d)
	case report.Check:
		b.check(d)
	case report.Plan:
		b.plan(d)
	case report.Grant:
		b.grant(d)
	case report.DryRun:
		b.dryRun(d)
	case report.Applied:
		b.applied(d)
	case []report.Applied:
		for _, a := range d {
			b.applied(a)
		}
	case report.Moved:
		b.moved(d)
	case []report.Moved:
		b.advanced(d)
	default:
		return b.overview(doc)
	}
	return true
}

// overview renders the documents that show what is there.
func (b *page) overview(doc any) bool {
	switch d := doc.(type) {
	case report.Circuits:
		b.circuits(d)
	case []report.Environment:
		b.environments(d)
	case report.Status:
		b.status(d)
	case report.Inspect:
		b.inspect(d)
	case []report.Transaction:
		b.history(d)
	case report.Event:
		b.event(d)
	case []report.Event:
		for _, e := range d {
			b.event(e)
		}
	case report.Doctor:
		b.doctor(d)
	case report.Recovered:
		b.recovered(d)
	case report.Pruned:
		b.pruned(d)
	default:
		return false
	}
	return true
}

// page is text in the making.
type page struct {
	strings.Builder
	color bool
}

// line writes one line. Arguments that are text are made safe and stay on it:
// a label with a line end in it must not look like a line of ours.
func (b *page) line(format string, args ...any) {
	for i, a := range args {
		switch v := a.(type) {
		case string:
			args[i] = oneLine(v)
		case fmt.Stringer:
			args[i] = oneLine(v.String())
		}
	}
	fmt.Fprintf(b, format+"\n", args...)
}

// table writes rows in aligned columns below a heading; nothing without rows.
func (b *page) table(head string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	var lines strings.Builder
	w := tabwriter.NewWriter(&lines, 0, 0, 2, ' ', 0)
	if head != "" {
		fmt.Fprintln(w, strings.Join(strings.Fields(head), "\t"))
	}
	for _, r := range rows {
		for i := range r {
			r[i] = oneLine(r[i])
			if r[i] == "" {
				r[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	w.Flush() // writes to memory, which cannot refuse
	for l := range strings.Lines(lines.String()) {
		b.WriteString(strings.TrimRight(l, " \n") + "\n")
	}
}

// wide is how many runes a column of free text takes at most. A table is for
// looking over; whole texts are in the lines below it, in inspect and in --json.
const wide = 48

// short cuts a text for a table, in its middle where both ends say something: a
// path by its file, a probe by its address.
func short(s string) string {
	r := []rune(oneLine(s))
	if len(r) <= wide {
		return string(r)
	}
	head := wide * 2 / 3
	return string(r[:head]) + "…" + string(r[len(r)-(wide-head-1):])
}

// list writes a titled list; nothing without items.
func (b *page) list(title string, items []string) {
	if len(items) == 0 {
		return
	}
	b.line("%s:", title)
	for _, it := range items {
		b.line("  %s", it)
	}
}

// glyph is text of our own that may hold escape sequences.
type glyph string

// mark is ✓ or ✗.
func (b *page) mark(ok bool) glyph {
	switch {
	case ok && b.color:
		return "\x1b[32m✓\x1b[0m"
	case ok:
		return "✓"
	case b.color:
		return "\x1b[31m✗\x1b[0m"
	default:
		return "✗"
	}
}

// Safe renders what could steer a terminal as \xNN: control bytes but tab and
// line end, invalid UTF-8, bidirectional controls. Text that is safe already
// stays as it is, so that what was escaped once is not escaped twice.
func Safe(s string) string {
	if !strings.ContainsFunc(s, steers) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !steers(r) {
			b.WriteString(s[i : i+n])
			i += n
			continue
		}
		for _, c := range []byte(s[i : i+n]) {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
		i += n
	}
	return b.String()
}

// oneLine is Safe without line ends and tabs, which would be taken for ours.
func oneLine(s string) string {
	return strings.NewReplacer("\t", `\x09`, "\n", `\x0a`).Replace(Safe(s))
}

// steers reports a rune that a terminal would act on.
func steers(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' || r == 0x7f || r == utf8.RuneError ||
		r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// count renders a number with its noun: "1 circuit", "2 circuits".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
