// Package nettwin makes the replica of the host's network in which a view's
// changes are tried: same interface names, numbers, MACs, addresses, routes and
// rules, and a way out that really reaches the outside.
//
// [Mirror] fills a network namespace that somebody else made and owns, from the
// network namespace of its caller. Interfaces are TAPs, and TUNs where the host's
// has no link layer; a child process (package relay) holds their other end and
// dials again, from the host's side, what comes out of them. So nothing is switched
// on on the host: no forwarding, no address translation, no sysctl. Everything
// vanishes with descriptors. Where the twin goes a way that the host does not, its
// [Options.Ways] make the host go it for flows of the relay alone (package lanes); this
// package itself changes nothing there.
//
// What a link of the host is in the twin, by kind. Traffic that the twin routes to
// it leaves by the host's, so a difference matters only to who looks at the link
// itself or changes it; [Twin.Notes] names each.
//
//	Ethernet, veth, tap                      a TAP, the same to whoever looks
//	bridge, bond, vlan, macvlan, vrf, vxlan  a TAP: no ports, no lower link, no options
//	dummy, ifb, Ethernet with ARP off        a TAP with ARP off: one lane, the link itself
//	tun, wireguard, ppp, ipip, sit, gre      a TUN: one lane; keys, peers and who reads it stay outside
//	lo, and tunl0 and its like               the kernel's own; nothing leaves by them
//
// Routes, rules, nexthop objects, addresses, labels, static neighbours, sysctls and
// packet filters (nftables, and the legacy tables of iptables) are what the host
// dumps, told again; what the twin's kernel does not take is noted. Not copied are queueing disciplines, XDP
// programs, IPsec, tracked connections and what advertised routers and leases go on
// renewing: the copy is for good.
//
// What was made is recorded from inside at the end, and [Twin.Difference] says
// what the inside changed since. The record is never compared with the host: a
// TAP is not an Ethernet card, and a table of the twin's own stands among the host's.
//
// The package runs no program but the relay. It decides nothing about circuits
// or plans, and it starts nothing inside the twin.
package nettwin
