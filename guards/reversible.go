package guards

// reversible wants a committed transaction to be the newest over its paths and
// the host to be as it was committed.
func reversible(f Facts) *Refusal {
	switch {
	case !f.Reverse.Known:
		return &Refusal{Reason: "the transaction was not compared with the host", Fix: "netsandbox history"}
	case len(f.Reverse.Newer) > 0:
		return &Refusal{
			Reason:   "newer transactions cover the same paths; roll them back first, in this order",
			Subjects: f.Reverse.Newer,
			Fix:      "netsandbox rollback " + f.Reverse.Newer[0] + " --yes",
		}
	case len(f.Reverse.Drifted) > 0:
		subjects, fix := list(f.Reverse.Drifted)
		return &Refusal{Reason: "the host is not as it was committed", Subjects: subjects, Fix: fix}
	}
	return nil
}
