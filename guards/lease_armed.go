package guards

// leaseArmed wants somebody else to be watching before the first change, across
// a reboot too where the host itself is the base.
func leaseArmed(f Facts) *Refusal {
	switch {
	case !f.Lease.Armed:
		return &Refusal{Reason: "no keeper watches the trial", Fix: f.command("apply", "--yes")}
	case f.Lease.BootRequired && !f.Lease.BootPresent && !f.Lease.BootWaived:
		return &Refusal{
			Reason: "nothing would undo the trial after a reboot: no service manager here can run the recovery unit",
			Fix:    f.command("apply", "--yes --no-boot-recovery"),
		}
	}
	return nil
}
