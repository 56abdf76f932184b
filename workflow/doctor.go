package workflow

import (
	"context"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// Doctor says what this machine can do. Its probes do the thing in a scratch
// place; they change nothing that stays.
func (w *Workflow) Doctor(ctx context.Context) (report.Doctor, error) {
	doc := report.Doctor{Schema: report.Schema("doctor"), Ready: true, Findings: []backends.Finding{}}
	p, ok := w.Backend.(backends.Prober)
	if !ok {
		doc.Ready = false
		return doc, nil
	}
	doc.Findings = append(doc.Findings, p.Probe(ctx, w.Dir)...)
	for _, f := range doc.Findings {
		doc.Ready = doc.Ready && f.Status != "missing"
	}
	return doc, nil
}
