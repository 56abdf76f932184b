package guards

// originsUnchanged wants the host to be what each change was derived from, and
// that to be certain.
func originsUnchanged(f Facts) *Refusal {
	if len(f.Layer.Moved) == 0 {
		return nil
	}
	subjects, fix := list(f.Layer.Moved)
	return &Refusal{Reason: "the host is not what the change was derived from", Subjects: subjects, Fix: fix}
}
