package relay

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// everyThread makes a system call on all threads of the process: credentials and
// no_new_privs belong to a thread. It is refused (ENOTSUP) in a binary with cgo,
// whose threads the runtime does not know; there the relay does not start.
func everyThread(trap, a, b uintptr) error {
	if _, _, e := syscall.AllThreadsSyscall6(trap, a, b, 0, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

// denied are the system calls that no carrier of packets makes. A program in Go
// grows and loses calls with every release, so this is a list of what is denied
// and not of what is allowed; what it leaves cannot name a file, another process
// or another namespace.
var denied = []uint32{
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_KCMP,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
	unix.SYS_FSPICK, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS, unix.SYS_UNSHARE,
	unix.SYS_SOCKETPAIR, unix.SYS_LISTEN, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_MEMFD_CREATE,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_SECCOMP,
	unix.SYS_REBOOT, unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
	unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SYSLOG, unix.SYS_FANOTIFY_INIT, unix.SYS_VHANGUP,
	unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID, unix.SYS_CAPSET,
}

// The little of classic BPF that the filter is written in.
const (
	bpfLoad  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfAtLst = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	bpfAnd   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	bpfMask  = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	bpfRet   = unix.BPF_RET | unix.BPF_K
)

// Offsets in struct seccomp_data. Both architectures are little-endian, and the
// low half of an argument is enough for families and flags.
const (
	dataNr   = 0
	dataArch = 4
	dataArg0 = 16
	dataArg1 = 24
	dataArg2 = 32
)

// sockTypeMask takes SOCK_NONBLOCK and SOCK_CLOEXEC away from a type of socket.
const sockTypeMask = 0xf

const (
	allow = unix.SECCOMP_RET_ALLOW
	eperm = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	// The Go runtime falls back to clone where clone3 is not there.
	enosys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

func stmt(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }

func jump(code uint16, k uint32, t, f uint8) unix.SockFilter {
	return unix.SockFilter{Code: code, K: k, Jt: t, Jf: f}
}

func filter() []unix.SockFilter {
	p := []unix.SockFilter{
		stmt(bpfLoad, dataArch),
		jump(bpfEqual, auditArch, 1, 0),
		stmt(bpfRet, unix.SECCOMP_RET_KILL_PROCESS),
		stmt(bpfLoad, dataNr),
		jump(bpfAtLst, foreignABI, 0, 1),
		stmt(bpfRet, enosys),
		jump(bpfEqual, unix.SYS_CLONE3, 0, 1),
		stmt(bpfRet, enosys),
	}
	for _, nr := range denied {
		p = append(p, jump(bpfEqual, nr, 0, 1), stmt(bpfRet, eperm))
	}
	for _, when := range []struct {
		nr   uint32
		body []unix.SockFilter
	}{
		{unix.SYS_SOCKET, internetOnly},
		{unix.SYS_SETSOCKOPT, hostsPackets},
		{unix.SYS_CLONE, threadsOnly},
	} {
		p = append(append(p, jump(bpfEqual, when.nr, 0, uint8(len(when.body)))), when.body...)
	}
	return append(p, stmt(bpfRet, allow))
}

// What decides a system call by its arguments: every way through it ends.
var (
	// The Internet only. The host's abstract sockets live in this network namespace,
	// and netlink could change it. Streams and datagrams, and raw for ICMP alone: with
	// CAP_NET_RAW a raw socket of another protocol forges packets of the host, and
	// SOCK_PACKET is AF_PACKET under the name of AF_INET.
	internetOnly = []unix.SockFilter{
		stmt(bpfLoad, dataArg0),
		jump(bpfEqual, unix.AF_INET, 1, 0),
		jump(bpfEqual, unix.AF_INET6, 0, 9),
		stmt(bpfLoad, dataArg1),
		stmt(bpfMask, sockTypeMask),
		jump(bpfEqual, unix.SOCK_STREAM, 5, 0),
		jump(bpfEqual, unix.SOCK_DGRAM, 4, 0),
		jump(bpfEqual, unix.SOCK_RAW, 0, 4),
		stmt(bpfLoad, dataArg2),
		jump(bpfEqual, unix.IPPROTO_ICMP, 1, 0),
		jump(bpfEqual, unix.IPPROTO_ICMPV6, 0, 1),
		stmt(bpfRet, allow),
		stmt(bpfRet, eperm),
	}
	// No headers of its own making: they would say any protocol. And no sources that
	// are not the host's, which CAP_NET_RAW gives to any socket: the process that
	// opens the transparent ones hands them over.
	hostsPackets = []unix.SockFilter{
		stmt(bpfLoad, dataArg1),
		jump(bpfEqual, unix.SOL_IP, 0, 3),
		stmt(bpfLoad, dataArg2),
		jump(bpfEqual, unix.IP_HDRINCL, 5, 0),
		jump(bpfEqual, unix.IP_TRANSPARENT, 4, 5),
		jump(bpfEqual, unix.SOL_IPV6, 0, 4),
		stmt(bpfLoad, dataArg2),
		jump(bpfEqual, unix.IPV6_HDRINCL, 1, 0),
		jump(bpfEqual, unix.IPV6_TRANSPARENT, 0, 1),
		stmt(bpfRet, eperm),
		stmt(bpfRet, allow),
	}
	threadsOnly = []unix.SockFilter{
		stmt(bpfLoad, dataArg0),
		jump(bpfAnd, unix.CLONE_THREAD, 1, 0),
		stmt(bpfRet, eperm),
		stmt(bpfRet, allow),
	}
)

func denySyscalls() error {
	f := filter()
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(f)
	if e != 0 {
		return fmt.Errorf("set system call filter: %w", e)
	}
	return nil
}
