// Package execlog is what exec leaves behind instead of opening the journal,
// because opening the journal costs more than the sandbox does.
//
// An environment's directory holds three small files of this package. exec.log is
// append-only: one line when a command is about to run, made durable before it
// runs, and one when it ended. The journal stores how far it has folded the log
// into the environment's state and compares [Length] in the transaction that
// moves the state, so the state is never behind what was run. gate says whether
// commands may run at all; it is shut by a trial, under the lock that every
// append takes, so nothing slips in behind it. lock is the environment's flock,
// shared by what adds to the layer and exclusive for what needs it to hold still.
//
// The log holds complete argument vectors, which may be secrets: its mode is
// 0600 and its readers pass on the first word and a count.
//
// This package is on the hot path of exec. It imports no store and nothing that
// is slow to initialise; a test holds the list.
package execlog
