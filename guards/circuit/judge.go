package circuit

// Answer is what one probe in one world said.
type Answer struct {
	// Ran is false where the world could not be built, the probe not started, or
	// its failure says nothing because the twin could not do as the host would.
	Ran    bool
	OK     bool   // the probe succeeded
	Reason string // why not, or why it did not run
}

// Evidence is the answers of the worlds a circuit was probed in.
type Evidence struct {
	Candidate Answer // the change, on the twin
	Control   Answer // no change, on a pristine twin
	Cut       Answer // no change, no way out
	Host      Answer // no change, on the host itself, from the jail
}

// Judge turns evidence into a result.
//
// The control view is what keeps the verdict honest: a circuit that fails on an
// unchanged twin although it works on the host is the twin's limit, never the
// change's fault, so it is Unverifiable and not Lost. So is one whose failure in
// either view came with a limit of the twin; the candidate's is given first, as no
// control view can mend it. A canary that still passes with the way out cut cannot
// notice a broken network; it is Insensitive.
func Judge(d Definition, e Evidence) (r Result, reason string, sensitive bool) {
	if d.Kind == Inbound {
		return Unverifiable, "the client is elsewhere; no paired outside probe", false
	}
	if !e.Candidate.Ran {
		return Unverifiable, "candidate view: " + e.Candidate.Reason, false
	}
	sensitive = e.Cut.Ran && !e.Cut.OK
	switch {
	case e.Candidate.OK && e.Cut.Ran && e.Cut.OK:
		return Insensitive, "passes with the way out cut", false
	case e.Candidate.OK && e.Control.Ran && !e.Control.OK && e.Host.Ran && !e.Host.OK:
		return New, "failed before the change: " + e.Host.Reason, sensitive
	case e.Candidate.OK && e.Control.Ran && !e.Control.OK && !e.Host.Ran:
		return New, "failed before the change: " + e.Control.Reason, sensitive
	case e.Candidate.OK:
		return Preserved, "", sensitive
	case !e.Control.Ran:
		return Unverifiable, "control view: " + e.Control.Reason, sensitive
	case e.Control.OK:
		return Lost, e.Candidate.Reason, sensitive
	case e.Host.Ran && e.Host.OK:
		return Unverifiable, "fails on an unchanged twin too: " + e.Control.Reason, sensitive
	case !e.Host.Ran:
		// Whether the twin is to blame or the circuit never worked, only the host knows.
		return Unverifiable, "fails on an unchanged twin too, and the host cannot tell: " + e.Host.Reason, sensitive
	default:
		// Failed before and fails now. A required circuit that never worked cannot
		// vouch for a change.
		return Lost, "failed before the change too: " + e.Candidate.Reason, sensitive
	}
}
