// Package fake is a host in memory, for property tests of the transaction.
//
// It keeps the rules of a real adapter — identity by object number and content,
// leave alone what is somebody else's — over a flat map of paths, and lets a
// test fail or interrupt it at any single operation. What it holds is what a
// disk would hold after a crash; nothing of a call in progress survives outside
// it. It knows nothing of mounts, permissions or races; those need a kernel, and
// hostfiles' own tests.
package fake
