// Package demo tells the whole story of netsandbox in a throw-away network, with
// the real verbs: a change that breaks the host's way out is found and refused,
// the repaired one is applied, and one that only works where it was rehearsed
// undoes itself.
//
// Four parts play it, all of them this program: the world (PID 1 of the
// namespaces), the teller, and the servers and the client of the network. Package
// demonet builds the place and shows that nothing of it remains.
package demo
