// Package guards decides whether an environment may make a move.
//
// A guard is a pure function over [Facts] that were read in the same journal
// transaction in which the move would be made. It does no I/O, asks nobody and
// remembers nothing; given the same facts it always answers the same. Its
// negative answer is a [Refusal] that says why, about what, and which command
// gets past it.
//
// One guard a file. Which edge asks which guard is written in package states.
package guards
