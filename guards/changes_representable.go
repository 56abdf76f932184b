package guards

import (
	"fmt"
	"slices"
)

// changesRepresentable wants every difference to have a type: what has none is
// neither guessed nor dropped.
func changesRepresentable(f Facts) *Refusal {
	if len(f.Layer.Untyped) == 0 {
		return nil
	}
	// A firewall that was flushed is as many differences as it had rules, all for one
	// reason; changes lists them all.
	const most = 8
	all := slices.Clone(f.Layer.Untyped)
	_, fix := list(all)
	more := len(all) - most
	if more > 1 {
		all = all[:most]
	}
	for i := range len(all) - 1 {
		if all[i].Reason == all[i+1].Reason {
			all[i].Reason = "" // said with the last that has it
		}
	}
	subjects, _ := list(all)
	if more > 1 {
		subjects = append(subjects, fmt.Sprintf("and %d more", more))
	}
	return &Refusal{Reason: "differences that no plan can express", Subjects: subjects, Fix: fix}
}
