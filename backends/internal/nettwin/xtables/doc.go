// Package xtables copies the legacy tables of iptables, ip6tables and arptables
// from one network namespace to another, and reads them in a form that two
// readings can be compared in.
//
// A table is one blob: the kernel gives it out by a socket option and takes it
// back by another, so it is replaced as a whole. Names of tables come from
// /proc: asking the kernel for any other would make it, and load its module.
//
// Rules of iptables-nft are nftables, and of package nft. There too is what is
// learnt from matches and targets, which are the same in both.
package xtables
