// Package rtnl speaks rtnetlink in raw messages.
//
// What the kernel dumps is what it is told again, with the interface numbers
// rewritten: a library that parses routes into fields loses the attributes it
// does not know (lwtunnel encapsulation, router preference, nexthop ids), and
// a route that lost its encapsulation sends traffic in the clear. So messages
// stay bytes; this package walks their attributes, filters and rewrites them,
// and renders them as an administrator would type them.
//
// It decides nothing: what is mirrored and what counts as a difference is said
// in the package above.
package rtnl
