package workflow

import (
	"context"
	"fmt"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// Changes lists everything that differs: what can be planned, what blocks, and
// what is never planned.
func (w *Workflow) Changes(ctx context.Context, name string) (report.Changes, error) {
	p, err := w.find(ctx, name)
	if err != nil {
		return report.Changes{}, err
	}
	l, err := w.read(ctx, p)
	if err != nil {
		return report.Changes{}, err
	}
	return report.Changes{
		Schema: report.Schema("changes"), Name: name, Layer: l.digest, Changes: list(l.Changes), Blockers: list(l.Blockers),
		Ephemeral: list(l.Ephemeral), Network: list(l.Network),
	}, nil
}

// Diff renders the differences as text: unified diffs where both sides are text,
// words where they are not. One path, or all when path is empty. Private keys
// are masked unless secrets. Of what views hide, nothing is shown: a view asks for
// its own difference, and what it wrote before the host had a secret there would
// have it printed.
func (w *Workflow) Diff(ctx context.Context, name, path string, secrets bool) (report.Diff, error) {
	p, err := w.find(ctx, name)
	if err != nil {
		return report.Diff{}, err
	}
	var only change.Path
	if path != "" {
		if only, err = resolvePath(p.spec.Base, path); err != nil {
			return report.Diff{}, err
		}
	}
	l, err := w.read(ctx, p)
	if err != nil {
		return report.Diff{}, err
	}
	hidden, _, err := w.covers(ctx, p.view)
	if err != nil {
		return report.Diff{}, err
	}
	doc := report.Diff{Schema: report.Schema("diff"), Name: name, Files: []report.FileDiff{}, Network: []string{}}
	if only == "" {
		doc.Network = list(l.Network)
	}
	for _, c := range l.Changes {
		if only != "" && c.Path != only && !below(string(c.Path), string(only)) {
			continue
		}
		text := fmt.Sprintf("%s: hidden in the view: its content is not shown\n", c.Path)
		if !covered(hidden, c.Path) {
			if text, err = w.render(ctx, p, c, secrets); err != nil {
				return doc, fmt.Errorf("diff %s: %w", c.Path, err)
			}
		}
		doc.Files = append(doc.Files, report.FileDiff{Path: c.Path, Op: c.Op, Text: text})
	}
	if only != "" && len(doc.Files) == 0 {
		return doc, hint(fmt.Errorf("%s does not differ from the host", only), "netsandbox changes %s", name)
	}
	return doc, nil
}

// list makes an absent slice an empty one, which is what JSON readers expect.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
