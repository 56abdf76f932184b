package harden

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

// foreign is 0: this architecture has one table of calls.
const foreign = 0

var deniedHere []uint32
