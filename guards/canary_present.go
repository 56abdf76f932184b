package guards

import "github.com/netsandbox/netsandbox/guards/circuit"

// canaryPresent wants an application canary that would notice: required, held,
// and failing when the way out is cut. A TCP circuit proves transport only.
// A plan of files below a base of the user's own touches no lifeline and needs
// none.
func canaryPresent(f Facts) *Refusal {
	if f.Layer.FilesOnly && f.Layer.BelowRoot {
		return nil
	}
	var insensitive []string
	for _, c := range f.Circuits {
		if c.Kind != circuit.Canary || !c.Required {
			continue
		}
		switch o := f.Observations[c.ID]; {
		case o.Result == circuit.Insensitive:
			insensitive = append(insensitive, "circuit "+c.Label+" passes with the way out cut")
		case o.Result.Holds():
			return nil
		case o.Result == circuit.Lost && f.Warn:
			return nil
		}
	}
	return &Refusal{
		Reason:   "no required application canary vouches for the change",
		Subjects: insensitive,
		Fix:      f.command("circuit add", "LABEL -- COMMAND"),
	}
}
