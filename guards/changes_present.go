package guards

// changesPresent wants something to plan.
func changesPresent(f Facts) *Refusal {
	switch {
	case !f.Layer.Known:
		return &Refusal{Reason: "the layer was not read", Fix: f.command("changes")}
	case f.Layer.Changes == 0 && len(f.Layer.Untyped)+len(f.Layer.Moved) == 0:
		return &Refusal{Reason: "nothing in the view differs from the host", Fix: f.command("exec", "-- COMMAND")}
	}
	return nil
}
