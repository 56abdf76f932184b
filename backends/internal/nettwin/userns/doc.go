// Package userns makes one system call with the credentials of the user
// namespace that owns a network namespace.
//
// Real root may do everything there but what the kernel allows to nobody else
// than the owner: the owner match of iptables is refused from any other user
// namespace, since its numbers are that namespace's ids. Entering one takes a
// process of one thread, so a child is forked that makes the call and ends; it
// shares descriptors with its parent and runs no program.
package userns
