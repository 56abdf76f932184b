// Package escape is a program that runs as root inside a view and tries every
// way out that is known: it rewrites host settings, mounts what must not be
// mounted, makes device nodes, looks for the state directory behind its cover,
// and calls each refused system call. It is used by tests only.
//
// It must be harmless where it succeeds, since the same program runs in a view
// made without hardening to show that its probes can find something. So it
// writes back the bytes it read, opens what it need not write, undoes what it
// made, and gives destructive calls arguments that the kernel rejects after
// the permission check and before the effect.
package escape
