// Package netlab builds throw-away networks out of network namespaces: nodes,
// cables between them, addresses and routes. The demonstration and the tests of
// the twin run in one.
//
// A lab touches nothing but the namespaces that it made itself. They have no
// names and no files, and vanish with [Lab.Close] or with the process, however
// it ends. It starts no program by itself and needs root.
package netlab
