package guards

// planCurrent wants the recorded plan to be what planning would give now.
func planCurrent(f Facts) *Refusal {
	switch {
	case f.Plan == nil || f.Plan.Cycle != f.Cycle:
		return &Refusal{Reason: "there is no plan of this cycle", Fix: f.command("plan")}
	case f.Plan.Now != f.Plan.Digest:
		return &Refusal{
			Reason:   "the plan is not current",
			Subjects: []string{"recorded " + f.Plan.Digest, "now " + f.Plan.Now},
			Fix:      f.command("plan"),
		}
	}
	return nil
}
