package relay

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// foreignABI begins the numbers of the x32 ABI, by which the same calls could
	// be made under others.
	foreignABI = 0x40000000
)
