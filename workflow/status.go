package workflow

import (
	"context"
	"errors"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/execlog"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// Status says where an environment stands and what stands before its next move.
// It starts nothing and changes nothing.
func (w *Workflow) Status(ctx context.Context, name string) (report.Status, error) {
	p, err := w.find(ctx, name)
	if err != nil {
		return report.Status{}, err
	}
	return w.status(ctx, p)
}

func (w *Workflow) status(ctx context.Context, p place) (report.Status, error) {
	doc := report.Status{Schema: report.Schema("status")}
	if !ready(p.env) {
		doc.Environment = line(p.env)
		doc.Circuits = []report.Circuit{}
		doc.Notes = append(doc.Notes, "not completely created: netsandbox discard "+p.env.Name+" --yes")
		return doc, nil
	}
	p, err := peek(p)
	if err != nil {
		return doc, err
	}
	doc.Environment = line(p.env)
	l, err := w.read(ctx, p)
	if err != nil {
		return doc, err
	}
	doc.View = l.status
	if l.status.TwinLost {
		doc.Notes = append(doc.Notes, "the network twin was lost, and its changes with it: netsandbox reset "+p.env.Name+" --network")
	}
	doc.Notes = append(doc.Notes, staleNotes(l.Blockers)...)
	f, err := w.facts(ctx, p, l)
	if err != nil {
		return doc, err
	}
	if f.Plan, err = w.planFact(ctx, p, l, f); err != nil {
		return doc, err
	}
	doc.Circuits = w.circuits(f)
	doc.Evidence = evidence(f)
	if doc.Next = w.next(p, f); doc.Next != nil && doc.Next.On != states.Check {
		pre, err := w.preflight(ctx, p, l.Changes, l.Blockers)
		if err != nil {
			return doc, err
		}
		doc.Next.Guards = append(doc.Next.Guards, report.GuardLine{Guard: preflightGuard, Holds: pre == nil, Refusal: pre})
	}
	doc.Txn, err = w.pending(ctx, p)
	if doc.Txn != nil {
		doc.Notes = append(doc.Notes, "transaction "+doc.Txn.ID+" is "+doc.Txn.Status+": netsandbox recover")
	}
	return doc, err
}

// peek shows an environment as the next step would find it, without folding.
func peek(p place) (place, error) {
	if p.env.State == states.Trial {
		return p, nil
	}
	records, next, err := execlog.Since(p.spec.Dir, p.env.ExecFolded)
	if err != nil {
		return p, err
	}
	for _, r := range records {
		if r.Started() {
			if begins(p.env.State, states.Exec) && p.env.ExecFolded != next {
				p.env.Cycle++
			}
			p.env.State = states.Exercised
		}
	}
	return p, nil
}

// evidence is the age in seconds of the oldest observation that a required
// circuit has on this layer.
func evidence(f guards.Facts) *float64 {
	var oldest *float64
	for _, c := range f.Circuits {
		if !c.Required {
			continue
		}
		o, ok := f.Observations[c.ID]
		if !ok || o.Result == circuit.Pending || o.Layer != f.Layer.Digest || o.BootID != f.BootID {
			return nil
		}
		if age := (f.Now - o.Boottime).Seconds(); oldest == nil || age > *oldest {
			oldest = &age
		}
	}
	return oldest
}

// next asks every guard of the next move. What a step takes for itself, the host
// lock and the lease, counts as taken: nobody can hold it beforehand.
func (w *Workflow) next(p place, f guards.Facts) *report.Next {
	on, ok := states.Next(p.env.State)
	if !ok || p.env.State == states.Trial {
		return nil
	}
	edge, ok := states.Find(p.env.State, on)
	if !ok {
		return nil
	}
	f.HostLock = guards.Lock{Held: true}
	f.Lease = w.leaseFact(p, false)
	f.Lease.Armed = true
	n := &report.Next{On: on, To: edge.To, Command: command(on, f)}
	for _, g := range edge.Guards {
		if g == states.AuthorityHeld && on == states.Authorize {
			continue // the verb itself gives it
		}
		l := report.GuardLine{Guard: g, Holds: true}
		if r := guards.Check([]states.Guard{g}, f); r != nil {
			l.Holds, l.Refusal = false, &r[0]
		}
		n.Guards = append(n.Guards, l)
	}
	return n
}

// Inspect is everything recorded of an environment.
func (w *Workflow) Inspect(ctx context.Context, name string) (report.Inspect, error) {
	p, err := w.find(ctx, name)
	if err != nil {
		return report.Inspect{}, err
	}
	st, err := w.status(ctx, p)
	if err != nil {
		return report.Inspect{}, err
	}
	doc := report.Inspect{
		Schema: report.Schema("inspect"), Status: st, Spec: p.spec, Policy: policyDoc(p.policy),
		Grants: []report.Grant{}, Transactions: []report.Transaction{}, Resources: []report.Resource{},
	}
	if doc.Plan, err = w.planDoc(ctx, p); err != nil {
		return doc, err
	}
	if doc.Covers, doc.CoverNotes, err = w.covers(ctx, p.view); err != nil {
		return doc, err
	}
	return doc, w.store.View(ctx, func(tx *journal.Tx) error {
		g, err := tx.LastGrant(p.env.ID)
		if err == nil {
			doc.Grants = append(doc.Grants, grantDoc(name, g))
		} else if !errors.Is(err, journal.ErrNotFound) {
			return err
		}
		txns, err := tx.Txns(journal.TxnFilter{Env: p.env.ID})
		if err != nil {
			return err
		}
		for _, t := range txns {
			doc.Transactions = append(doc.Transactions, txnDoc(t))
		}
		rs, err := tx.Resources(p.env.ID)
		for _, r := range rs {
			doc.Resources = append(doc.Resources, report.Resource{Kind: r.Kind, Name: r.Name, Status: r.Status})
		}
		return err
	})
}

func policyDoc(p Policy) report.Policy {
	return report.Policy{OnFailure: p.OnFailure, AutoRollback: p.AutoRollback, Authority: p.Authority}
}
