package guards

// changesRepresentable wants every difference to have a type: what has none is
// neither guessed nor dropped.
func changesRepresentable(f Facts) *Refusal {
	if len(f.Layer.Untyped) == 0 {
		return nil
	}
	subjects, fix := list(f.Layer.Untyped)
	return &Refusal{Reason: "differences that no plan can express", Subjects: subjects, Fix: fix}
}
