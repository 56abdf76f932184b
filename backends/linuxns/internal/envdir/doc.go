// Package envdir is the layout of one environment's directory and the small
// files in it that outlive a process: which names mean what, who holds the
// environment, and since when its view has been mounted.
package envdir
