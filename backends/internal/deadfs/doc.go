// Package deadfs finds out whether a filesystem answers, without waiting for good
// for one that does not.
//
// A call that the server of a network or FUSE filesystem has taken and does not
// answer cannot be interrupted: the thread stays in the kernel, and a process
// ends only when all of its threads do. So it is a process of its own that
// looks, and it is left behind when it hangs.
package deadfs
