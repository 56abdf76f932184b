// Package states says what an environment can be: nine states, one file each,
// and one table of the moves between them.
//
// The table is data. The state machine, `netsandbox states`, the help texts and
// the diagram below are made from it and a test holds them equal, so there is
// one place where a move is permitted. What must be true for a move is named
// here and decided in package guards; how a move is made is package workflow's.
// This package imports nothing of ours and does no I/O.
//
// A state file lists the edges that leave its state. Three things hold for all
// of them: no two edges of a state share a trigger, nothing but commit, rollback
// and lapse leaves Trial, and only a check that found evidence wanting moves an
// environment backward without being asked to.
package states
