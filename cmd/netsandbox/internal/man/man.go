// Package man writes manual pages from the command tree, so that none can say
// anything that --help does not.
package man

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page is the manual page of one command.
type Page struct {
	Name string // "netsandbox-circuit-add"
	cmd  *cobra.Command
	exit string
}

// Pages lists the pages of a tree: one for each command that is shown in help.
// exit says what the exit codes of a command mean.
func Pages(c *cobra.Command, exit func(*cobra.Command) string) []Page {
	if c.Hidden || !c.IsAvailableCommand() && c.HasParent() {
		return nil
	}
	pages := []Page{{Name: name(c), cmd: c, exit: exit(c)}}
	for _, sub := range c.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			pages = append(pages, Pages(sub, exit)...)
		}
	}
	return pages
}

func name(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// Write writes the page in the man macros of roff, man(7).
func (p Page) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 \"\" netsandbox \"User Commands\"\n", strings.ToUpper(p.Name))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(p.Name), escape(lower(p.cmd.Short)))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", escape(strings.TrimSuffix(p.cmd.UseLine(), " [flags]")))
	section(&b, "DESCRIPTION", p.cmd.Long)
	if p.cmd.HasExample() {
		section(&b, "EXAMPLES", p.cmd.Example)
	}
	options(&b, "OPTIONS", p.cmd.NonInheritedFlags())
	options(&b, "GLOBAL OPTIONS", p.cmd.InheritedFlags())
	if p.exit != "" {
		section(&b, "EXIT STATUS", p.exit)
	}
	var also []string
	if p.cmd.HasParent() {
		also = append(also, name(p.cmd.Parent()))
	}
	for _, sub := range p.cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			also = append(also, name(sub))
		}
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, a := range also {
		end := ","
		if i == len(also)-1 {
			end = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", escape(a), end)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// section writes text that is laid out already: indented lines stay as they are.
func section(b *strings.Builder, title, text string) {
	fmt.Fprintf(b, ".SH %q\n", title)
	verbatim := false
	for l := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		l = strings.TrimRight(l, "\n")
		indented := strings.HasPrefix(l, "  ")
		switch {
		case indented && !verbatim:
			b.WriteString(".nf\n")
		case !indented && verbatim:
			b.WriteString(".fi\n")
		}
		verbatim = indented
		if l == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(escape(l) + "\n")
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
}

func options(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %q\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		arg, usage := pflag.UnquoteUsage(f)
		head := "--" + f.Name
		if f.Shorthand != "" {
			head = "-" + f.Shorthand + ", " + head
		}
		if arg != "" {
			head += " " + arg
		}
		if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" && d != "0s" {
			usage += " (default " + d + ")"
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", escape(head), escape(usage))
	})
}

// lower makes a sentence's first letter small, as NAME sections have it.
func lower(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// escape keeps roff from reading requests and escapes in text.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
