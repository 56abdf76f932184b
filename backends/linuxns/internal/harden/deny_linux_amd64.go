package harden

import "golang.org/x/sys/unix"

// arch is the only one whose system calls the filter can tell apart; a program
// of another one is killed.
const arch = unix.AUDIT_ARCH_X86_64

// x32 numbers its calls from here, beside the ordinary ones.
const foreign = 0x40000000

var deniedHere = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM}
