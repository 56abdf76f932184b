package harden

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockScopeABI is the first version of Landlock that can cut abstract Unix
// sockets (Linux 6.12).
const landlockScopeABI = 6

// ScopeAbstract keeps every thread of the process, and what it starts, from
// connecting to abstract Unix sockets made outside: they belong to the network
// namespace, so in the host's they reach the host's daemons whatever is mounted.
// Where Landlock cannot do it, Unix sockets are refused as a whole.
func ScopeAbstract() error {
	abi, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if int(abi) < landlockScopeABI {
		return refuseUnix()
	}
	attr := unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL}
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return fmt.Errorf("make Landlock rules: %w", e)
	}
	defer unix.Close(int(fd))
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); e != 0 {
		return fmt.Errorf("apply Landlock rules: %w", e)
	}
	return nil
}

// refuseUnix adds a filter that answers socket(AF_UNIX) with EACCES.
func refuseUnix() error {
	f := []unix.SockFilter{
		load(offNr),
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 3),
		load(offArg0),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 1),
		ret(errno(unix.EACCES)),
		ret(unix.SECCOMP_RET_ALLOW),
	}
	return install(f)
}
