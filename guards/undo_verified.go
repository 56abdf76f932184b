package guards

// undoVerified wants the host to be as before.
func undoVerified(f Facts) *Refusal {
	if f.Undo.Verified {
		return nil
	}
	subjects, _ := list(f.Undo.Left)
	return &Refusal{Reason: "the undo is not complete", Subjects: subjects, Fix: "netsandbox recover"}
}
