// Package nft speaks nf_tables in raw messages: it keeps one table that nobody
// inside a twin can flush, reads a whole ruleset as bytes, makes the like in
// another namespace, puts it into words that two readings can be compared in, and
// says what of it decides how a twin must behave.
//
// The table carries the owner flag (Linux 5.12): it belongs to the netlink socket
// that made it, survives "nft flush ruleset" by anybody else, refuses their edits
// and vanishes when the socket closes. Libraries send table flags of their own
// choosing and keep their socket to themselves, so the batch is built here.
// Beside the captures of the loopback relay it keeps the inside from filling the
// kernel's neighbour tables, which all namespaces share.
//
// A ruleset is copied as the kernel dumps it: text loses the order of what it
// lists, and a library the expressions that it does not know. What the kernel
// does not take is left out by name, and nothing is put in its place. Matches and
// targets of iptables are among the expressions; legacy tables are of package
// xtables.
package nft
