package guards

import "fmt"

// changesRepresentable wants every difference to have a type: what has none is
// neither guessed nor dropped.
func changesRepresentable(f Facts) *Refusal {
	if len(f.Layer.Untyped) == 0 {
		return nil
	}
	subjects, fix := list(f.Layer.Untyped)
	// A firewall that was flushed is as many differences as it had rules; changes
	// lists them all.
	const most = 8
	if n := len(subjects) - most; n > 1 {
		subjects, _ = list(f.Layer.Untyped[:most])
		subjects = append(subjects, fmt.Sprintf("and %d more", n))
	}
	return &Refusal{Reason: "differences that no plan can express", Subjects: subjects, Fix: fix}
}
