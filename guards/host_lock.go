package guards

// hostLock wants to be the only trial on the machine.
func hostLock(f Facts) *Refusal {
	if f.HostLock.Held {
		return nil
	}
	r := &Refusal{Reason: "another trial has the host", Fix: "netsandbox history"}
	if f.HostLock.By != "" {
		r.Subjects = []string{f.HostLock.By}
	}
	return r
}
