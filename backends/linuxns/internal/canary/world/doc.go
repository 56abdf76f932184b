// Package world makes the throw-away view that a canary runs in, runs it there,
// and takes everything down again.
//
// Four worlds differ in three things: the files below, the network, and who
// could interfere. All of them have an upper that ends with them, so a canary
// writes where it likes and changes nothing.
package world
