package linuxns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// installFilter puts a seccomp filter on the calling thread only.
func installFilter(program []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("install a seccomp filter: %w", errno)
	}
	return nil
}

// tryLandlock restricts the calling thread to abstract sockets of its own
// domain and connects to one from outside.
func tryLandlock(context.Context, string) (string, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return "", fmt.Errorf("ask for the version: %w", errno)
	}
	const scopes = 6 // the first version that has them
	if abi < scopes {
		return "", fmt.Errorf("version %d, scopes need %d", abi, scopes)
	}
	name := fmt.Sprintf("@netsandbox-doctor-%d", os.Getpid())
	l, err := net.Listen("unix", name)
	if err != nil {
		return "", fmt.Errorf("listen on an abstract socket: %w", err)
	}
	defer l.Close()
	attr := unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL}
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return "", fmt.Errorf("make a ruleset: %w", errno)
	}
	defer unix.Close(int(ruleset))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "", fmt.Errorf("set no_new_privs: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return "", fmt.Errorf("restrict to the ruleset: %w", errno)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); !errors.Is(err, unix.EPERM) {
		return "", fmt.Errorf("an abstract socket out of scope answered %v", err) //nolint:errorlint // nil says that it was not refused
	}
	return fmt.Sprintf("version %d, abstract sockets and signals can be scoped", abi), nil
}
