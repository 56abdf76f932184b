// Package nettwin makes the replica of the host's network in which a view's
// changes are tried: same interface names, numbers, MACs, addresses, routes and
// rules, and a way out that really reaches the outside.
//
// [Mirror] fills a network namespace that somebody else made and owns, from the
// network namespace of its caller. Interfaces are TAPs; a child process (package
// relay) holds their other end and dials again, from the host's side, what comes
// out of them. So nothing is switched on on the host: no forwarding, no address
// translation, no rule, no sysctl. Everything vanishes with descriptors.
//
// What was made is recorded from inside at the end, and [Twin.Difference] says
// what the inside changed since. The record is never compared with the host: a
// TAP is not an Ethernet card, and loading a ruleset does not give its text back.
//
// The package runs no program but the relay. It decides nothing about circuits
// or plans, and it starts nothing inside the twin.
package nettwin
