package guards

import "github.com/netsandbox/netsandbox/states"

// planCurrent wants the recorded plan to be what planning would give now.
func planCurrent(f Facts) *Refusal {
	switch {
	case f.Plan == nil || f.Plan.Cycle != f.Cycle:
		return &Refusal{Reason: "there is no plan of this cycle", Fix: f.command("plan")}
	case f.Plan.Now != f.Plan.Digest:
		return &Refusal{
			Reason:   "the plan is not current",
			Subjects: []string{"recorded " + f.Plan.Digest, "now " + f.Plan.Now},
			Fix:      f.planAnew(),
		}
	}
	return nil
}

// planAnew is the command that leads to another plan: authority for the old one
// is given back first.
func (f Facts) planAnew() string {
	if f.State == states.Authorized {
		return f.command("revoke")
	}
	return f.command("plan")
}
