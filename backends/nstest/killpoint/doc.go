// Package killpoint kills a program at each of its durable steps.
//
// A durable step is a system call after which the disk may be different when
// everything is lost: a sync, or an operation on names. [Trace] runs a program
// to its end and lists the steps that it really took; [Kill] runs it again and
// stops the world right before or right after one of them. Nothing in the
// program knows of it, so the points cannot be fewer than the steps.
//
// It works by ptrace(2): every thread of the program is traced, its children are
// not. All calls about one tracee must come from one thread, so a run locks its
// goroutine to a thread.
package killpoint
