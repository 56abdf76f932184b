package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/netsandbox/netsandbox/guards/authority"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// AuthorizeOptions say what is granted, and how it was asked.
type AuthorizeOptions struct {
	Plan string        // digest; a prefix will do where it is unambiguous
	For  time.Duration // zero is [authority.Default]
	// How is what the person did: "--yes", "terminal".
	How string
}

// Authorize records authority for exactly one plan and one trial.
func (w *Workflow) Authorize(ctx context.Context, name string, o AuthorizeOptions) (report.Grant, error) {
	var doc report.Grant
	if o.Plan == "" {
		return doc, hint(fmt.Errorf("%w: --plan DIGEST says what is granted", ErrUsage), "netsandbox plan %s", name)
	}
	if o.For == 0 {
		o.For = authority.Default
	}
	if o.For < 0 || o.For > 24*time.Hour {
		return doc, fmt.Errorf("%w: --for is at most 24h", ErrUsage)
	}
	err := again(ctx, func() error {
		p, err := w.enter(ctx, name)
		if err != nil {
			return err
		}
		doc, err = w.authorize(ctx, &p, o)
		return err
	})
	return doc, err
}

func (w *Workflow) authorize(ctx context.Context, p *place, o AuthorizeOptions) (report.Grant, error) {
	if p.policy.Authority == string(authority.Terminal) && o.How != "terminal" {
		return report.Grant{}, hint(fmt.Errorf("environment %s wants authority from a terminal", p.env.Name),
			"netsandbox authorize %s --plan %s on a terminal", p.env.Name, o.Plan)
	}
	l, err := w.read(ctx, *p)
	if err != nil {
		return report.Grant{}, err
	}
	f, err := w.facts(ctx, *p, l)
	if err != nil {
		return report.Grant{}, err
	}
	if f.Plan, err = w.planFact(ctx, *p, l, f); err != nil {
		return report.Grant{}, err
	}
	now, err := w.Clock()
	if err != nil {
		return report.Grant{}, err
	}
	g := authority.Grant{
		ID: ulid.Make().String(), Plan: o.Plan, Cycle: p.env.Cycle, Level: authority.Level(p.policy.Authority),
		By: actor(), How: o.How, BootID: now.BootID, Expires: now.Boottime + o.For, At: now.At, Until: now.At.Add(o.For),
	}
	if f.Plan != nil && len(o.Plan) >= 15 && strings.HasPrefix(f.Plan.Digest, o.Plan) {
		g.Plan = f.Plan.Digest
	}
	f.Grant = &g
	_, err = w.do(ctx, p, move{on: states.Authorize, facts: f, with: func(tx *journal.Tx, env *journal.Env, _ states.State) error {
		if err := tx.PutGrant(env.ID, g); err != nil {
			return err
		}
		return w.event(tx, env.ID, "", EventGrantRecorded, map[string]any{
			"grant": g.ID, "plan": g.Plan, "by": g.By, "how": g.How, "until": g.Until,
		})
	}})
	return grantDoc(p.env.Name, journal.Grant{Env: p.env.ID, Grant: g}), err
}

// Revoke takes authority back.
func (w *Workflow) Revoke(ctx context.Context, name string) (report.Moved, error) {
	doc := report.Moved{Schema: report.Schema("moved"), Name: name, On: states.Revoke}
	err := again(ctx, func() error {
		p, err := w.enter(ctx, name)
		if err != nil {
			return err
		}
		m, err := w.withdraw(ctx, &p, states.Revoke, "revoked by "+actor())
		doc.From, doc.To = m.from, m.to
		return err
	})
	return doc, err
}

func (w *Workflow) withdraw(ctx context.Context, p *place, on states.Trigger, why string) (moved, error) {
	return w.do(ctx, p, move{on: on, with: func(tx *journal.Tx, env *journal.Env, _ states.State) error {
		if err := tx.RevokeGrants(env.ID, why); err != nil {
			return err
		}
		return w.event(tx, env.ID, "", EventGrantRevoked, map[string]any{"why": why})
	}})
}

// expire moves an environment whose grant ran out back to Planned. Nobody asks
// for it; every step that meets one does it first.
func (w *Workflow) expire(ctx context.Context, p place) (place, error) {
	if p.env.State != states.Authorized {
		return p, nil
	}
	now, err := w.Clock()
	if err != nil {
		return p, err
	}
	var g journal.Grant
	err = w.store.View(ctx, func(tx *journal.Tx) (err error) {
		g, err = tx.LastGrant(p.env.ID)
		return err
	})
	if err != nil && !errors.Is(err, journal.ErrNotFound) {
		return p, err
	}
	if ok, why := g.Grant.Holds(g.Plan, p.env.Cycle, now.BootID, now.Boottime); !ok {
		_, err = w.withdraw(ctx, &p, states.Expire, why)
		return p, err
	}
	return p, nil
}

func grantDoc(name string, g journal.Grant) report.Grant {
	return report.Grant{
		Schema: report.Schema("grant"), Name: name, ID: g.ID, Plan: g.Plan, By: g.By, How: g.How,
		At: g.At, Until: g.Until, Used: g.Used, Revoked: g.Revoked,
	}
}
