// Package nft speaks nf_tables in raw messages, for two purposes: to keep one
// table that nobody inside a twin can flush, and to read a whole ruleset in a
// form that two readings can be compared in.
//
// The table carries the owner flag (Linux 5.12): it belongs to the netlink socket
// that made it, survives "nft flush ruleset" by anybody else, refuses their edits
// and vanishes when the socket closes. Libraries send table flags of their own
// choosing and keep their socket to themselves, so the batch is built here.
//
// It loads no ruleset and changes no table but its own.
package nft
