package guards

// layerUnchanged wants the layer to be the one the recorded plan was made of.
func layerUnchanged(f Facts) *Refusal {
	for _, c := range f.Circuits {
		if !c.Required {
			continue
		}
		if o, ok := f.Observations[c.ID]; ok && o.Layer != f.Layer.Digest {
			return &Refusal{Reason: "the layer changed since it was checked", Fix: f.command("check")}
		}
	}
	if f.Plan != nil && f.Plan.Cycle == f.Cycle && f.Plan.Now != f.Plan.Digest {
		return &Refusal{Reason: "the layer changed since it was planned", Fix: f.command("plan")}
	}
	return nil
}
