//go:build cgo

package main

// withCgo: threads that C starts are beyond the Go runtime's reach, so what must
// hold for all threads of a process (no_new_privs, dropped capabilities) cannot
// be set: syscall.AllThreadsSyscall answers ENOTSUP.
const withCgo = true
