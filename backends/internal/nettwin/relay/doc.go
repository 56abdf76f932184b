// Package relay carries the twin's traffic: it is the process at the other end
// of the TAPs.
//
// It answers ARP and neighbour discovery with one MAC per (interface, next
// hop), so the destination MAC of a frame says which way the twin's own kernel
// chose. TCP and UDP end in a user-space stack and are dialled again from the
// host's network namespace; the twin's handshake completes only after the outer
// dial did. An echo request goes out by a socket of the host with the lifetime it
// has inside; replies, and what routers complain of, come back with their senders.
//
// # The way of a flow
//
// For each new flow the host's kernel is asked (RTM_GETROUTE with source,
// protocol and ports, and without an interface) which way an ordinary socket of
// the host with the twin's source address would go. If that is the way that the
// twin chose, such a socket is made. Else the host is made to go it for this flow
// alone: a mark is asked for over a second socket, and the kernel is asked again,
// with the mark. Answers are never kept, for the host's routes change, and the
// last question is put when the port of the socket is known, for rules may name
// ports. A host that spreads flows over several next hops is always told which.
//
// What a client sends again may go another way, for somebody on the host may have
// taken the lane away meanwhile. So the question is put once more when a handshake
// is over and before the first answer is passed on, and what was removed and made
// again in between counts as removed.
//
// A flow whose answers the host would drop on their way in is bound first, let in
// by its five-tuple, and taken back when the kernel says that the connection is
// over. Where the host translates addresses, the outcome is held against the
// twin's after the connect.
//
// What cannot be done as the host would do it is refused inside, with ICMP or a
// reset, and remembered as a [way.Limit]: a check that failed then proves
// nothing.
//
// Frames are written by whoever is root inside the view, so they are hostile.
// The process that parses them is a child of its own: it is handed descriptors,
// throws away everything else (file system, capabilities, most system calls)
// and ends when the control socket does. It never carries a flow another way than
// the twin chose, and an address of the host is dialled only from the loopback
// allow-list. It has no right to change the host's routing itself; the process
// that has ([Spawn]) takes its word for nothing.
//
// The twin itself (links, routes, rules, packet filters) is made in the package
// above; nothing here touches it.
package relay
