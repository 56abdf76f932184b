package workflow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// CircuitOptions describe a new circuit.
type CircuitOptions struct {
	Label     string
	Argv      []string // canary
	Env       []string // names of variables to carry from the caller
	Address   string   // tcp, "host:port"
	Interface string
}

// CircuitAdd registers an application canary. It is not run: that is check's,
// in views that cannot touch the host.
func (w *Workflow) CircuitAdd(ctx context.Context, name string, o CircuitOptions) (report.Circuits, error) {
	if len(o.Argv) == 0 {
		return report.Circuits{}, fmt.Errorf("%w: a canary needs a command after --", ErrUsage)
	}
	d := circuit.Definition{Kind: circuit.Canary, Argv: o.Argv}
	for _, v := range o.Env {
		if v == "" || strings.ContainsRune(v, '=') {
			return report.Circuits{}, fmt.Errorf("%w: --env takes the name of a variable, not %q", ErrUsage, v)
		}
		value, ok := lookup(callerEnv(), v)
		if !ok {
			return report.Circuits{}, fmt.Errorf("%w: --env %s: the variable is not set", ErrUsage, v)
		}
		d.Env = append(d.Env, v+"="+value)
	}
	return w.addCircuit(ctx, name, o.Label, d)
}

// CircuitAddTCP registers a direct TCP reachability check.
func (w *Workflow) CircuitAddTCP(ctx context.Context, name string, o CircuitOptions) (report.Circuits, error) {
	host, port, err := net.SplitHostPort(o.Address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || host == "" || n == 0 {
		return report.Circuits{}, fmt.Errorf("%w: %q is not HOST:PORT", ErrUsage, o.Address)
	}
	return w.addCircuit(ctx, name, o.Label, circuit.Definition{Kind: circuit.TCP, Address: o.Address, Interface: o.Interface})
}

func (w *Workflow) addCircuit(ctx context.Context, name, label string, d circuit.Definition) (report.Circuits, error) {
	if label == "" || len(label) > 128 || strings.ContainsFunc(label, unicode.IsControl) {
		return report.Circuits{}, fmt.Errorf("%w: a label is 1 to 128 bytes without control characters", ErrUsage)
	}
	d.ID, d.Label, d.Required = shortID(), label, true
	d.UID, d.GID = uint32(os.Geteuid()), uint32(os.Getegid())
	if gs, err := os.Getgroups(); err == nil {
		for _, g := range gs {
			d.Groups = append(d.Groups, uint32(g))
		}
	}
	// A probe runs where it was said, or would find other files: as with exec.
	var err error
	if d.Cwd, err = os.Getwd(); err != nil {
		return report.Circuits{}, fmt.Errorf("find working directory: %w", err)
	}
	return w.editCircuits(ctx, name, func(tx *journal.Tx, p place) error {
		err := tx.AddCircuit(p.env.ID, d)
		if errors.Is(err, journal.ErrExists) {
			return hint(fmt.Errorf("circuit %q exists already in %s", label, name), "netsandbox circuit list %s", name)
		}
		if err != nil {
			return err
		}
		return w.event(tx, p.env.ID, "", EventCircuitAdded, map[string]any{"circuit": d.ID, "label": label, "kind": d.Kind})
	}, d)
}

// CircuitIgnore makes a circuit non-blocking. Weakening what is required is told
// in the plan, with who did it.
func (w *Workflow) CircuitIgnore(ctx context.Context, name, id string) (report.Circuits, error) {
	return w.setRequired(ctx, name, id, false)
}

// CircuitRequire makes a circuit block again.
func (w *Workflow) CircuitRequire(ctx context.Context, name, id string) (report.Circuits, error) {
	return w.setRequired(ctx, name, id, true)
}

func (w *Workflow) setRequired(ctx context.Context, name, id string, required bool) (report.Circuits, error) {
	return w.editCircuits(ctx, name, func(tx *journal.Tx, p place) error {
		c, err := w.circuit(tx, p, id)
		if err != nil {
			return err
		}
		was := c.Required
		c.Required = required
		if err := tx.SetCircuit(p.env.ID, c.Definition); err != nil {
			return err
		}
		return w.event(tx, p.env.ID, "", EventCircuitChanged, map[string]any{
			"circuit": c.ID, "label": c.Label, "required": required, "was": was, "weakened": was && !required,
		})
	}, circuit.Definition{})
}

// CircuitRemove forgets a circuit. What was observed of it stays in the journal.
func (w *Workflow) CircuitRemove(ctx context.Context, name, id string) (report.Circuits, error) {
	return w.editCircuits(ctx, name, func(tx *journal.Tx, p place) error {
		c, err := w.circuit(tx, p, id)
		if err != nil {
			return err
		}
		if err := tx.RemoveCircuit(p.env.ID, c.ID); err != nil {
			return err
		}
		return w.event(tx, p.env.ID, "", EventCircuitRemoved, map[string]any{
			"circuit": c.ID, "label": c.Label, "required": c.Required, "weakened": c.Required,
		})
	}, circuit.Definition{})
}

func (w *Workflow) circuit(tx *journal.Tx, p place, id string) (journal.Circuit, error) {
	c, err := tx.Circuit(p.env.ID, id)
	if errors.Is(err, journal.ErrNotFound) {
		return c, hint(fmt.Errorf("%w: %s", ErrNoCircuit, id), "netsandbox circuit list %s", p.env.Name)
	}
	return c, err
}

// editCircuits changes the list in one transaction. A trial uses the list that
// is frozen in its plan, so nothing may be edited meanwhile.
func (w *Workflow) editCircuits(ctx context.Context, name string, edit func(*journal.Tx, place) error, added circuit.Definition) (report.Circuits, error) {
	var p place
	port, own := ownPort(ctx, added.Address)
	err := again(ctx, func() (err error) {
		if p, err = w.enter(ctx, name); err != nil {
			return err
		}
		if p.env.State == states.Trial {
			return impossible(guards.Facts{Env: name, State: p.env.State}, "edit circuits")
		}
		if own && port != sshPort {
			if err := p.view.Relay(ctx, port); err != nil {
				return fmt.Errorf("relay port %d: %w", port, err)
			}
		}
		return w.store.Update(ctx, func(tx *journal.Tx) error {
			env, err := tx.EnvByID(p.env.ID)
			if err != nil {
				return err
			}
			if env.Version != p.env.Version {
				return journal.ErrMoved
			}
			return edit(tx, p)
		})
	})
	if err != nil {
		return report.Circuits{}, err
	}
	return w.Circuits(ctx, name)
}

// Circuits lists the circuits of an environment with their latest observation.
func (w *Workflow) Circuits(ctx context.Context, name string) (report.Circuits, error) {
	p, err := w.find(ctx, name)
	if err != nil {
		return report.Circuits{}, err
	}
	f, err := w.facts(ctx, p, layer{})
	if err != nil {
		return report.Circuits{}, err
	}
	return report.Circuits{Schema: report.Schema("circuits"), Name: name, Circuits: w.circuits(f)}, nil
}

// Connections is the comparison of capabilities, baseline against candidate.
func (w *Workflow) Connections(ctx context.Context, name string) (report.Circuits, error) {
	doc, err := w.Circuits(ctx, name)
	doc.Schema = report.Schema("connections")
	for i, c := range doc.Circuits {
		doc.Circuits[i].Baseline = baseline(c)
	}
	return doc, err
}

// baseline says in words what a circuit did on the unchanged host.
func baseline(c report.Circuit) string {
	switch {
	case c.Kind == circuit.Outbound || c.Kind == circuit.Inbound:
		return "established"
	case c.Result == circuit.New || strings.HasPrefix(c.Reason, "failed before the change"):
		return "failed"
	case c.Result == circuit.Pending || c.Result == circuit.Ignored:
		return "not observed"
	}
	return "worked"
}

// circuits renders the circuits of facts.
func (w *Workflow) circuits(f guards.Facts) []report.Circuit {
	out := make([]report.Circuit, 0, len(f.Circuits))
	for _, d := range f.Circuits {
		c := report.Circuit{Definition: d, Result: circuit.Pending}
		c.Env = namesOnly(d.Env)
		if o, ok := f.Observations[d.ID]; ok {
			c.Result, c.Reason, c.Layer = o.Result, o.Reason, o.Layer
			c.TookMS = float64(o.Took) / float64(time.Millisecond)
			if o.BootID == f.BootID && f.Now >= o.Boottime {
				age := (f.Now - o.Boottime).Seconds()
				c.AgeS = &age
			}
		}
		if !d.Required {
			c.Result = circuit.Ignored
		}
		out = append(out, c)
	}
	return out
}

// namesOnly drops the values of variables: they are credentials more often than
// not.
func namesOnly(env []string) []string {
	var out []string
	for _, kv := range env {
		n, _, _ := strings.Cut(kv, "=")
		out = append(out, n)
	}
	return slices.Clip(out)
}

func lookup(environ []string, name string) (string, bool) {
	for _, kv := range environ {
		if n, v, _ := strings.Cut(kv, "="); n == name {
			return v, true
		}
	}
	return "", false
}
