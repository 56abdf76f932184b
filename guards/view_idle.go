package guards

import "slices"

// viewIdle wants nothing to live in the view, since a reset would end it.
func viewIdle(f Facts) *Refusal {
	if len(f.Processes) == 0 {
		return nil
	}
	return &Refusal{Reason: "processes are alive in the view", Subjects: f.Processes, Fix: f.command("reset", append(slices.Clone(f.Drop), "--stop")...)}
}
