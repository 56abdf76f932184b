// Package journal is the durable record of every environment: one SQLite
// database below the state directory.
//
// It holds what was decided and seen, never what is being done. A row that says
// a transaction is open is only the index of that transaction's own file, from
// which it can be undone while this database is unreadable; and a resource is
// recorded before it is made, so that a crash leaves a row to sweep rather than
// an object nobody knows.
//
// Writers use [Store.Update], a BEGIN IMMEDIATE transaction: what a guard reads
// in it is what the move it permits is written against, and [Tx.MoveEnv] is a
// compare-and-set besides, for facts read in an earlier one. No lock is held
// across an effect on the host: read, decide, write, close; then act.
//
// Events are append-only and hash-chained. That is evidence of corruption and of
// careless repair, not protection from root, who can rewrite the whole chain.
//
// A database of another application, of a newer version, damaged or read-only is
// refused without a byte of it changed. Package journal imports the row types of
// guards/circuit and guards/authority, the state names, and no step of workflow.
package journal
