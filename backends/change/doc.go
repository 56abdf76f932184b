// Package change is the vocabulary of differences between a view and the host.
//
// A [Change] is typed: it says which thing differs, what the host had when the
// change was derived (its origin) and what is wanted instead. What has no type
// is a [Blocker]: it is shown by name and it blocks a plan; nothing is guessed
// and nothing is dropped.
//
// The package is a leaf. It does no I/O; backends fill its types from a kernel
// and workflow orders, digests and stores them.
package change
