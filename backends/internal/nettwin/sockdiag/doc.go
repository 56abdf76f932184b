// Package sockdiag lists the sockets of a network namespace that listen, or have a
// mark, and says of a connection whether it is there, from outside the namespace
// (sock_diag(7)). It looks at no process and changes nothing.
package sockdiag
