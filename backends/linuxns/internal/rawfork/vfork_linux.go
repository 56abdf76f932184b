package rawfork

// vfork makes a system call that returns twice, clone or clone3 with CLONE_VM
// and CLONE_VFORK: the child borrows memory and stack of the calling thread,
// which waits until it has become another program. As in package syscall, the
// caller's frame is the child's for good, and the parent must return from it at
// once and use nothing in it but the results.
//
//go:noescape
func vfork(trap, a1, a2 uintptr) (r1, errno uintptr)
