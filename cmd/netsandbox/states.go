package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/report"
)

func newStatesCmd(a *app) *cobra.Command {
	format := "table"
	cmd := &cobra.Command{
		Use:         "states",
		Short:       "Print the state machine with its guards",
		Args:        cobra.NoArgs,
		Annotations: exits(),
	}
	cmd.Flags().StringVar(&format, "format", format, "table, mermaid or dot")
	cmd.RunE = func(*cobra.Command, []string) error {
		draw, ok := map[string]func() string{"table": states.Text, "mermaid": states.Mermaid, "dot": states.DOT}[format]
		switch {
		case !ok:
			return usage(fmt.Errorf("--format is table, mermaid or dot, not %q", format))
		case a.json:
			return a.print(machine())
		}
		_, err := fmt.Fprint(a.streams.out, draw())
		return err
	}
	return cmd
}

// machine is the table as a document.
func machine() report.States {
	doc := report.States{Schema: report.Schema("states"), States: states.All()}
	for _, e := range states.Table() {
		guards := e.Guards
		if guards == nil {
			guards = []states.Guard{}
		}
		doc.Edges = append(doc.Edges, report.Edge{From: e.From, On: e.On, To: e.To, Guards: guards, Else: e.Else})
	}
	return doc
}
