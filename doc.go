// Package netsandbox is the root of a tool that lets agents and people change a
// machine's network without cutting their own lifeline.
//
// A command runs in a view: the host's files copy-on-write, and a twin of its
// network that really reaches the outside. What changed becomes a typed plan;
// with authority for exactly that plan it is put on the host as a trial, which
// another process undoes unless every circuit that must survive still answers.
//
// There is no code here. The machine is in states, its predicates in guards, its
// steps in workflow, the operating systems in backends, and the command in
// cmd/netsandbox. The tests beside this file hold the shape of the tree: who may
// import whom, how long a file may be, which documents must tell the truth.
package netsandbox
