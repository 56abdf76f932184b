// Package conntrack asks the kernel where address translation sent a flow. It
// reads single entries of the table of a network namespace, from outside it, and
// changes none.
package conntrack
