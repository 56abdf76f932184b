package guards

// twinPresent wants the network that the evidence was gathered on to be there.
func twinPresent(f Facts) *Refusal {
	if !f.Layer.TwinLost {
		return nil
	}
	return &Refusal{Reason: "the network twin was lost, and its changes with it", Fix: f.command("reset", "--network")}
}
