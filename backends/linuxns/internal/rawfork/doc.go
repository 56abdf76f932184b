// Package rawfork starts processes whose first steps the standard library
// cannot express: entering a user namespace, waiting before exec, mounting
// inside a pid namespace, setting limits and credentials with a reason for each
// failure.
//
// setns(2) into a user namespace needs a single-threaded process, which a Go
// program is only in the child of a fork, before exec. Package syscall forks
// with three hooks of the runtime; their names are kept for outside users
// (see the comments at runtime.syscall_runtime_BeforeFork), and used here the
// same way. Between fork and exec only raw system calls are made: no
// allocation, no stack growth, nothing that could block on another thread.
package rawfork
