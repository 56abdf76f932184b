// Package hot is the short way of `netsandbox exec` and `enter`: its init runs
// the command and ends the process before the rest of the program initialises.
//
// A fully linked binary that does nothing costs nine tenths of a bubblewrap
// call, most of it initialisation of packages that a command in a live view
// does not need: the SQL engine, the command line library, the user-space
// network stack. Go initialises packages in the order of their import paths as
// soon as their own imports are ready (language specification, "Package
// initialization"; since Go 1.21), so this package, which imports little and
// sorts before them, comes first. A test holds it to that.
//
// What is unusual (help, wrong usage, a flag it does not know) is left to
// the command line proper, which says so in words.
package hot
