package guards

import (
	"fmt"

	"github.com/netsandbox/netsandbox/guards/circuit"
)

// circuitsPreserved wants every required circuit to hold on this very layer.
func circuitsPreserved(f Facts) *Refusal {
	return judgeCircuits(f, false)
}

func judgeCircuits(f Facts, fresh bool) *Refusal {
	var bad []string
	var worst circuit.Result
	for _, c := range f.Circuits {
		if !c.Required {
			continue
		}
		word, why := verdict(f, c, fresh)
		if word == "" {
			continue
		}
		bad = append(bad, why)
		if worst == "" || word == circuit.Lost {
			worst = word
		}
	}
	if len(bad) == 0 {
		return nil
	}
	r := &Refusal{Subjects: bad, Fix: f.command("check")}
	if len(bad) == 1 {
		r.Reason = "a required circuit does not hold"
	} else {
		r.Reason = fmt.Sprintf("%d required circuits do not hold", len(bad))
	}
	switch worst {
	case circuit.Lost:
		r.Fix = f.command("exec", "-- COMMAND") // repair the change, then check; an agent could not use a shell
	case circuit.Unverifiable:
		r.Fix = f.command("circuit ignore", "CIRCUIT")
	}
	return r
}

// verdict returns an empty word when the circuit may pass, else the result that
// stands against it and a sentence.
func verdict(f Facts, c circuit.Definition, fresh bool) (circuit.Result, string) {
	o, ok := f.Observations[c.ID]
	name := "circuit " + c.Label
	switch {
	case !ok || o.Result == circuit.Pending:
		return circuit.Pending, name + " is pending"
	case o.Layer != f.Layer.Digest:
		return circuit.Pending, name + " was checked on another layer"
	case fresh && !o.Fresh(f.BootID, f.Now):
		return circuit.Pending, fmt.Sprintf("%s is stale (%s)", name, age(f, o))
	case o.Result.Holds():
		return "", ""
	case o.Result == circuit.Lost && f.Warn:
		return "", "" // recorded in plan and grant instead
	case o.Result == circuit.Unverifiable && c.Kind == circuit.Inbound && f.ConfirmWithin:
		return "", "" // settled by a confirmation from outside
	}
	s := name + " is " + lower(o.Result)
	if o.Reason != "" {
		s += " (" + o.Reason + ", " + age(f, o) + ")"
	}
	return o.Result, s
}

func age(f Facts, o circuit.Observation) string {
	d := f.Now - o.Boottime
	if o.BootID != f.BootID || d < 0 {
		return "before the last boot"
	}
	return fmt.Sprintf("%ds ago", int(d.Seconds()))
}

func lower(r circuit.Result) string {
	return map[circuit.Result]string{
		circuit.Lost: "lost", circuit.Unverifiable: "unverifiable", circuit.Pending: "pending", circuit.Ignored: "ignored",
	}[r]
}
