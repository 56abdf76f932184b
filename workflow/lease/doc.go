// Package lease makes sure that a trial ends: another process, the keeper, is
// armed before the first change and undoes everything unless it is told in time
// that all is well.
//
// The applier calls [Arm], which starts the keeper and returns only when the
// keeper has confirmed. From then on each watches the other over a socket pair.
// The applier renews the lease with a byte; the keeper answers each, so that a
// keeper that was stopped is noticed as well as one that died. Nothing of this is
// on disk: a heartbeat by fsync stalls with the disk, and the disk may be what
// the trial broke.
//
//   - The applier dies: its pidfd says so, the keeper undoes at once.
//   - The applier is stopped, or hangs: the lease runs out by CLOCK_BOOTTIME, the
//     keeper kills it through the pidfd and waits for its death before the first
//     step, because an applier that resumes over an undone host would change it.
//   - The keeper dies or stops: [Lease.Lost] closes and the applier undoes.
//   - A circuit breaks hard: the keeper tells the applier, and takes over when the
//     applier does not begin to undo within moments.
//   - Both die: nothing here is left. The transaction file still says armed, and
//     recover, at boot or by the next command, undoes from it.
//
// The keeper runs in a session of its own with terminal signals ignored, in a
// cgroup of its own, so that a logout, the stop of a service or the caller's
// out-of-memory killer do not take both. It is moved there by writing to the
// cgroup filesystem and not by asking systemd for a scope: a trial may have
// broken the bus, systemd kills only what is in the cgroups of its own units, and
// the same code serves machines without systemd.
//
// This package decides when to undo, never how, and writes no verdict: what
// undoes is given by the command that runs [Keep], and the verdict is a record in
// the transaction's file, written under that file's lock by package txn. Package
// bootunit is the unit that runs recover at boot.
package lease
