// Package txn applies a plan to the host so that it can be taken back, and takes
// it back.
//
// The one truth about a transaction is a file of checksummed records, appended
// and synced at the end of each phase:
//
//	header    who, what for, on which host and boot
//	prepare   every step with all that its undo needs; nothing is on the host
//	armed     the keeper watches
//	staged    everything wanted is on the host's filesystems, hidden
//	swap      the host may have changed from here on
//	swapped   all of it is in place and durable: the trial runs
//	verdict   commit or undo; written once, the first one stands
//	revert    a late rollback of a committed transaction has begun
//	restored  originals were made again from the second copy
//	undone    taken back, with what could not be
//	accepted  somebody settled what could not be taken back
//	clean     nothing is left to do
//	pruned    the first backup was given up
//	forgotten both copies were given up; it cannot be rolled back
//
// The journal's rows are an index of it. Keeper and recover finish a transaction
// from this file alone, with the database unreadable and the disk full: the
// space of everything that follows the swap is allocated before it.
//
// A flock on the file is the right to touch the host. Whoever holds it reads the
// file again first, so that a process which was stopped, and undone meanwhile,
// finds the verdict before it does anything.
//
// The package names no concrete backend; it drives whatever [backends.Host] it
// is given. When to commit and whom to ask is decided elsewhere.
package txn
