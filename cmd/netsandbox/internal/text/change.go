package text

import (
	"fmt"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/workflow/report"
)

func (b *page) created(d report.Created) {
	b.line("Created environment '%s'", d.Name)
	b.line("  backend %s, isolation %s, base %s", d.Backend, d.Mode, d.Base)
	if d.Circuits > 0 {
		b.line("  %s captured as circuits; see: netsandbox circuit list %s", count(d.Circuits, "connection"), d.Name)
	}
	if len(d.Covers) > 0 {
		b.line("  hides %s; see: netsandbox inspect %s", count(len(d.Covers), "path"), d.Name)
	}
	for _, m := range d.Mounts {
		// What is layered behaves as on the host, and every view has kernel
		// filesystems of its own; neither needs a line.
		if m.Treatment != "layer" && m.Treatment != "alias" && !kernels(m.Point) {
			b.line("  mount %s (%s) is %s: %s", m.Point, m.FS, m.Treatment, m.Reason)
		}
	}
	b.notes(d.Notes, d.Name)
	b.line("Next: %s", d.Next)
}

// notes prints what fits beside the rest: a host with many tunnels or policies has
// a twin with many notes, all of which inspect prints.
func (b *page) notes(notes []string, env string) {
	const most = 6
	for i, n := range notes {
		if i == most && len(notes) > most+1 {
			b.line("  and %s; see: netsandbox inspect %s", count(len(notes)-most, "more note"), env)
			return
		}
		b.line("  note: %s", n)
	}
}

// kernels reports a mount point where the kernel shows itself.
func kernels(point string) bool {
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run"} {
		if point == dir || strings.HasPrefix(point, dir+"/") {
			return true
		}
	}
	return false
}

func (b *page) staged(d report.Staged) {
	if d.Deleted {
		b.line("Candidate deletion: %s", d.Path)
		return
	}
	b.line("Candidate file: %s", d.Candidate)
}

func (b *page) changes(d report.Changes) {
	if len(d.Changes)+len(d.Blockers)+len(d.Network)+len(d.Ephemeral) == 0 {
		b.line("%s: nothing differs from the host", d.Name)
		return
	}
	b.table("", changeRows(d.Changes))
	b.blockers(d.Blockers)
	b.list("Network", unsaid(d.Network, d.Blockers))
	if len(d.Ephemeral) > 0 {
		b.line("Ephemeral, not planned; a file is when staged by name:")
		b.table("", indent(changeRows(d.Ephemeral)))
	}
}

// unsaid leaves out the lines that were printed as what blocks.
func unsaid(lines []string, said []change.Blocker) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		return slices.ContainsFunc(said, func(x change.Blocker) bool { return x.Subject == l })
	})
}

// changeRows renders one change a row: "modified  file  /etc/x  mode 0644 -> 0600".
func changeRows(cs []change.Change) [][]string {
	rows := make([][]string, len(cs))
	for i, c := range cs {
		rows[i] = []string{string(c.Op), changeType(c), c.Path.String(), changeDetail(c)}
	}
	return rows
}

func indent(rows [][]string) [][]string {
	for _, r := range rows {
		r[0] = "  " + r[0]
	}
	return rows
}

func changeType(c change.Change) string {
	switch {
	case c.Old != nil && c.New != nil && c.Old.Type != c.New.Type:
		return fmt.Sprintf("%s->%s", c.Old.Type, c.New.Type)
	case c.New != nil:
		return string(c.New.Type)
	case c.Old != nil:
		return string(c.Old.Type)
	default:
		return string(c.Kind)
	}
}

// changeDetail says in words, on one line, what a unified diff would not show.
func changeDetail(c change.Change) string {
	switch {
	case c.New == nil:
		return ""
	case c.Old == nil || c.Old.Type != c.New.Type:
		return strings.Join(newDetails(c.New), ", ")
	}
	var parts []string
	words := change.Words(c)
	switch {
	case c.New.Type == change.Symlink && c.Old.Target != c.New.Target:
		parts, words = append(parts, "-> "+c.New.Target.String()), change.Words(retargeted(c))
	case c.Old.SHA256 != c.New.SHA256:
		parts = append(parts, sizes(c.Old, c.New))
	}
	return strings.Join(append(parts, words...), ", ")
}

// sizes names the unit once where both sides have it.
func sizes(old, new *change.Entry) string {
	from := strings.TrimSuffix(change.Size(old.Size), " bytes")
	to := change.Size(new.Size)
	if !strings.HasSuffix(to, " bytes") {
		from = change.Size(old.Size)
	}
	if new.Sparse {
		to += " with holes"
	}
	return from + " -> " + to
}

// retargeted is a change as if the symlink had pointed there before.
func retargeted(c change.Change) change.Change {
	old := *c.Old
	old.Target = c.New.Target
	c.Old = &old
	return c
}

// newDetails tells of what is put in a place.
func newDetails(e *change.Entry) []string {
	parts := []string{fmt.Sprintf("mode %04o owner %d:%d", e.Mode, e.UID, e.GID)}
	switch {
	case e.Type == change.Symlink:
		parts[0] = "-> " + e.Target.String()
	case e.Link != "":
		parts = append(parts, "one file with "+e.Link.String())
	}
	if e.Type == change.Regular && e.Sparse {
		parts = append(parts, change.Size(e.Size)+" with holes")
	}
	return append(parts, change.Attributes(e)...)
}

func (b *page) blockers(bs []change.Blocker) {
	if len(bs) == 0 {
		return
	}
	b.line("Blocked:")
	for i, x := range bs {
		// One firewall is many differences: what is the same for all that follow
		// one another is said once, after the last.
		alone := i == 0 || !alike(bs[i-1], x)
		last := i == len(bs)-1 || !alike(x, bs[i+1])
		if alone && last {
			b.line("  %s %s: %s", b.mark(false), x.Subject, x.Reason)
		} else {
			b.line("  %s %s", b.mark(false), x.Subject)
		}
		if last && !alone {
			b.line("    %s", x.Reason)
		}
		if last && x.Fix != "" {
			b.line("    fix: %s", x.Fix)
		}
	}
}

// alike reports blockers that only differ in what they are about.
func alike(a, b change.Blocker) bool { return a.Reason == b.Reason && a.Fix == b.Fix }

func (b *page) diff(d report.Diff) {
	if len(d.Files)+len(d.Network) == 0 {
		b.line("%s: nothing differs from the host", d.Name)
		return
	}
	for _, f := range d.Files {
		b.WriteString(Safe(f.Text))
		if !strings.HasSuffix(f.Text, "\n") {
			b.WriteByte('\n')
		}
	}
	b.list("Network", d.Network)
}
