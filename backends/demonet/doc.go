// Package demonet is the throw-away world of `netsandbox demo`: a host with one
// link, a gateway that it reaches everything through, and an API server behind
// it, each a network namespace; and a directory of its own that holds the host's
// files which the story changes.
//
// But for that directory nothing of it has a name outside. It ends with the process that made it,
// however that ends: [World] starts that process as PID 1 of a namespace, and
// the kernel ends what lives in one with it. [Look] says what the real machine
// looks like before and after, so that the claim can be checked.
package demonet
