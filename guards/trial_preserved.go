package guards

import "github.com/netsandbox/netsandbox/guards/circuit"

// trialPreserved wants the host to equal the plan and every required circuit to
// answer on it.
func trialPreserved(f Facts) *Refusal {
	if !f.Trial.Verified {
		subjects, _ := list(f.Trial.Differs)
		return &Refusal{Reason: "the host does not equal the plan", Subjects: subjects}
	}
	if f.Trial.Keep {
		return nil // --auto-rollback=false: a failed circuit keeps the change, with a warning
	}
	var bad []string
	for _, c := range f.Circuits {
		if !c.Required {
			continue
		}
		o, ok := f.Trial.Results[c.ID]
		switch {
		case !ok:
			bad = append(bad, "circuit "+c.Label+" was not checked on the host")
		case o.Result.Holds():
		case o.Result == circuit.Unverifiable && c.Kind == circuit.Inbound && f.Trial.ConfirmRequired:
		case o.Result == circuit.Lost && f.Warn && f.Observations[c.ID].Result == circuit.Lost:
			// The loss was known, planned and authorized.
		default:
			bad = append(bad, "circuit "+c.Label+" is "+lower(o.Result)+" ("+o.Reason+")")
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return &Refusal{Reason: "a required circuit does not hold on the host", Subjects: bad}
}
