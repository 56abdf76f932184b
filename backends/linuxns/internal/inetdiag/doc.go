// Package inetdiag lists TCP sockets of the calling thread's network namespace
// through NETLINK_SOCK_DIAG, IPv4 and IPv6, filtered by state in the kernel.
//
// /proc/net/tcp would show the same sockets but is written in chunks without a
// snapshot, is quadratic on busy hosts, and says nothing of IPV6_V6ONLY or of a
// bound interface, both of which decide whether a listener can own a port.
// See sock_diag(7).
package inetdiag
