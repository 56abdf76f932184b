// Package sockdiag lists the sockets that listen in a network namespace, from
// outside it (sock_diag(7)). It looks at no process and changes nothing.
package sockdiag
