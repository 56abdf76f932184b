package guards

// authorityHeld wants a grant for exactly this plan, unused and in time.
func authorityHeld(f Facts) *Refusal {
	plan := ""
	if f.Plan != nil {
		plan = f.Plan.Digest
	}
	ok, why := f.Grant.Holds(plan, f.Cycle, f.BootID, f.Now)
	if ok && plan != "" {
		return nil
	}
	if plan == "" {
		plan, why = "DIGEST", "there is no plan to authorize"
	}
	return &Refusal{Reason: why, Fix: f.command("authorize", "--plan "+plan)}
}
