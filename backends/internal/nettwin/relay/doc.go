// Package relay carries the twin's traffic: it is the process at the other end
// of the TAPs.
//
// It answers ARP and neighbour discovery with one MAC per (interface, next
// hop), so the destination MAC of a frame says which way the twin's own kernel
// chose. TCP and UDP end in a user-space stack and are dialled again from the
// host's network namespace, bound to the interface the frame went out on; the
// twin's handshake completes only after the outer dial did.
//
// Frames are written by whoever is root inside the view, so they are hostile.
// The process that parses them is a child of its own: it is handed descriptors,
// throws away everything else (file system, capabilities, most system calls)
// and ends when the control socket does. It refuses to carry a packet where the
// host itself would not: a next hop that is not the host's own is answered with
// ICMP unreachable, never silently routed the host's way, and an address of the
// host is dialled only from the loopback allow-list.
//
// The twin itself (links, routes, rules, the nft table) is made in the package
// above; nothing here touches it.
package relay
