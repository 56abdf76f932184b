package harden

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; arguments are 64 bits wide and little-endian
// on both architectures.
const (
	offNr   = 0
	offArch = 4
	offArg0 = 16
)

func errno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func ret(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }

func jump(op uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k, Jt: yes, Jf: no}
}

// filter is the program for m. It is a denylist: the view must run whatever the
// host runs, and the namespaces are what keeps it in.
func (m Mode) filter() []unix.SockFilter {
	f := []unix.SockFilter{
		load(offArch),
		jump(unix.BPF_JEQ, arch, 1, 0),
		ret(unix.SECCOMP_RET_KILL_PROCESS),
		load(offNr),
	}
	if foreign != 0 {
		f = append(f, jump(unix.BPF_JGE, foreign, 0, 1), ret(errno(unix.ENOSYS)))
	}
	for _, nr := range m.Deny {
		f = append(f, jump(unix.BPF_JEQ, nr, 0, 1), ret(errno(unix.EPERM)))
	}
	// A vsock reaches the hypervisor's side past every network namespace.
	f = append(f,
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 4),
		load(offArg0),
		jump(unix.BPF_JEQ, unix.AF_VSOCK, 0, 1),
		ret(errno(unix.EAFNOSUPPORT)),
		load(offNr))
	if m.NoUserNS {
		f = append(f, // clone3 keeps its flags in memory, where no filter sees them
			jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1),
			ret(errno(unix.ENOSYS)))
		for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
			f = append(f,
				jump(unix.BPF_JEQ, nr, 0, 4),
				load(offArg0),
				jump(unix.BPF_JSET, unix.CLONE_NEWUSER, 0, 1),
				ret(errno(unix.EPERM)),
				load(offNr))
		}
	}
	return append(f, ret(unix.SECCOMP_RET_ALLOW))
}

// Seccomp puts the filter of m on every thread of the process. It leaves
// no_new_privs alone, because sudo and ping must work inside: so the caller
// still needs sys_admin in its user namespace.
func (m Mode) Seccomp() error {
	if len(m.Deny) == 0 {
		return nil
	}
	return install(m.filter())
}

func install(f []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	// With TSYNC a positive result is the thread that could not be synchronised.
	r, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return fmt.Errorf("install system call filter: %w", e)
	}
	if r != 0 {
		return fmt.Errorf("install system call filter: thread %d has another", r)
	}
	return nil
}
