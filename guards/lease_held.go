package guards

// leaseHeld wants the keeper to be watching still: a verdict after the lease
// lapsed would contradict an undo under way.
func leaseHeld(f Facts) *Refusal {
	if f.Lease.Armed && f.Lease.Held {
		return nil
	}
	return &Refusal{Reason: "the lease is not held any more", Fix: "netsandbox recover"}
}
