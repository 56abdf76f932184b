package states

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// anyButTrial stands in drawings for the moves that every state but Trial has.
// Without it four moves times eight states hide the ones worth reading. It is no
// State, so that nothing can be in it.
const anyButTrial = "any but trial"

// folded is the table with the moves common to every state but Trial said once.
// Its order is the table's, so that two drawings of one table are equal bytes.
func folded() []Edge {
	table := Table()
	var out []Edge
	for _, e := range table {
		if everywhere(table, e) {
			e.From = anyButTrial
			if slices.ContainsFunc(out, func(o Edge) bool { return o.From == e.From && o.On == e.On }) {
				continue
			}
		}
		out = append(out, e)
	}
	return out
}

// everywhere reports whether every state but Trial has the same move as e.
func everywhere(table []Edge, e Edge) bool {
	n := 0
	for _, o := range table {
		if o.From != Trial && o.On == e.On && o.To == e.To && o.Else == e.Else && slices.Equal(o.Guards, e.Guards) {
			n++
		}
	}
	return n == len(All())-1
}

// Text draws the table as aligned columns, one move a line.
func Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FROM\tON\tTO\tGUARDS")
	for _, e := range folded() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.From, e.On, e.To, condition(e))
	}
	w.Flush() // writes to memory, which cannot refuse
	return b.String()
}

// condition renders what an edge asks: "guard guard, else exercised", or "-".
func condition(e Edge) string {
	if len(e.Guards) == 0 {
		return "-"
	}
	s := names(e.Guards, " ")
	if e.Else != "" {
		s += ", else " + string(e.Else)
	}
	return s
}

func names(gs []Guard, sep string) string {
	parts := make([]string, len(gs))
	for i, g := range gs {
		parts[i] = string(g)
	}
	return strings.Join(parts, sep)
}

// Mermaid draws the table as a state diagram for Markdown.
func Mermaid() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	fmt.Fprintf(&b, "    state %q as %s\n", anyButTrial, ident(anyButTrial))
	fmt.Fprintf(&b, "    [*] --> %s : create\n", Created)
	for _, e := range folded() {
		fmt.Fprintf(&b, "    %s --> %s : %s\n", ident(e.From), ident(e.To), label(e, "<br/>"))
		if e.Else != "" {
			fmt.Fprintf(&b, "    %s --> %s : %s, else\n", ident(e.From), ident(e.Else), e.On)
		}
	}
	return b.String()
}

// DOT draws the table for graphviz.
func DOT() string {
	var b strings.Builder
	b.WriteString("digraph netsandbox {\n    rankdir=LR\n    node [shape=box, style=rounded]\n")
	fmt.Fprintf(&b, "    %s [label=%q, style=dashed]\n", ident(anyButTrial), anyButTrial)
	for _, s := range All() {
		fmt.Fprintf(&b, "    %s\n", ident(s))
	}
	for _, e := range folded() {
		fmt.Fprintf(&b, "    %s -> %s [label=\"%s\"]\n", ident(e.From), ident(e.To), label(e, `\n`))
		if e.Else != "" {
			fmt.Fprintf(&b, "    %s -> %s [label=\"%s, else\", style=dashed]\n", ident(e.From), ident(e.Else), e.On)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// label is a trigger with its guards in brackets, one a line.
func label(e Edge, newline string) string {
	if len(e.Guards) == 0 {
		return string(e.On)
	}
	return string(e.On) + newline + "[" + names(e.Guards, newline) + "]"
}

// ident is a state as a name that Mermaid and graphviz take unquoted.
func ident(s State) string { return strings.ReplaceAll(string(s), " ", "_") }
