package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards"
)

// layer is what the view has that the host has not, read once for one step.
type layer struct {
	backends.Difference
	digest string
	status backends.Status
	// stale is what the view may show as the host no longer has it.
	stale []change.Blocker
}

// read reads the layer of a view.
func (w *Workflow) read(ctx context.Context, p place) (layer, error) {
	// Status first: it is the one question that a holder which was stopped is not
	// waited for.
	st, err := p.view.Status(ctx)
	if err != nil {
		return layer{}, fmt.Errorf("inspect the view of %s: %w", p.env.Name, err)
	}
	d, err := p.view.Changes(ctx)
	if err != nil {
		return layer{}, fmt.Errorf("read the layer of %s: %w", p.env.Name, err)
	}
	st.Processes = list(st.Processes)
	old, err := w.stale(ctx, p, st, d.Changes)
	if err != nil {
		return layer{}, err
	}
	l := layer{Difference: d, digest: layerDigest(d), status: st, stale: append(old, copies(p.env.Name, d.Outdated)...)}
	if len(st.Processes) > 0 { // otherwise it shows the host's before anything sees it
		l.Blockers = append(l.Blockers, l.stale...)
	}
	return l, nil
}

// layerDigest covers what can be planned and how the twin differs. Ephemeral
// paths are no part of it: a log line must not make evidence stale.
func layerDigest(d backends.Difference) string {
	h := sha256.New()
	fmt.Fprintf(h, "netsandbox/layer/v1\n%s\n%d\n", change.Digest(d.Changes), len(d.Network))
	for _, line := range slices.Sorted(slices.Values(d.Network)) {
		fmt.Fprintf(h, "%d %s\n", len(line), line)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// facts puts a layer into the form guards read.
func (l layer) facts(base string) guards.Layer {
	g := guards.Layer{
		Known: true, Digest: l.digest, Changes: len(l.Changes), BelowRoot: base != "/",
		FilesOnly: len(l.Network) == 0, TwinLost: l.status.TwinLost,
	}
	for _, c := range l.Changes {
		g.FilesOnly = g.FilesOnly && c.Kind == change.KindFile
	}
	for _, b := range l.Blockers {
		o := guards.Obstacle{Subject: b.Subject, Reason: b.Reason, Fix: b.Fix}
		if b.What == "conflict" || b.What == "origin-uncertain" || b.What == staleView {
			g.Moved = append(g.Moved, o)
		} else {
			g.Untyped = append(g.Untyped, o)
		}
	}
	return g
}

// processes renders what lives in a view for people and guards.
func processes(st backends.Status) []string {
	var out []string
	for _, p := range st.Processes {
		out = append(out, fmt.Sprintf("pid %d %s", p.PID, change.Escape(p.Comm)))
	}
	return out
}
