package harden

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The second and third argument of a system call in struct seccomp_data.
const (
	offArg1 = offArg0 + 8
	offArg2 = offArg0 + 16
)

// Echoes tells which sockets for echo requests, or for packets as they are, a
// process and its children ask for. What they get is the kernel's decision: this
// only looks. No program can be made to say it, and many that ping say nothing.
type Echoes struct {
	fd        int
	ping, raw bool
}

// echoes is the filter that tells.
var echoes = []unix.SockFilter{
	load(offNr),
	jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 10),
	load(offArg0),
	jump(unix.BPF_JEQ, unix.AF_PACKET, 9, 0),
	jump(unix.BPF_JEQ, unix.AF_INET, 1, 0),
	jump(unix.BPF_JEQ, unix.AF_INET6, 0, 6),
	load(offArg1),
	{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf}, // without SOCK_CLOEXEC and SOCK_NONBLOCK
	jump(unix.BPF_JEQ, unix.SOCK_RAW, 4, 0),
	load(offArg2),
	jump(unix.BPF_JEQ, unix.IPPROTO_ICMP, 2, 0),
	jump(unix.BPF_JEQ, unix.IPPROTO_ICMPV6, 1, 0),
	ret(unix.SECCOMP_RET_ALLOW),
	ret(unix.SECCOMP_RET_USER_NOTIF),
}

// WatchEchoes watches what the calling thread starts from now on. The thread has
// no_new_privs set and opens no such socket itself: it would wait for its own
// answer. A process can have only one such watch (EBUSY, in seccomp(2)).
func WatchEchoes() (*Echoes, error) {
	prog := unix.SockFprog{Len: uint16(len(echoes)), Filter: &echoes[0]}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return nil, fmt.Errorf("watch for echo sockets: %w", e)
	}
	return &Echoes{fd: int(fd)}, nil // close-on-exec by itself
}

// FD is ready to be read when [Echoes.Next] has something to do.
func (w *Echoes) FD() int { return w.fd }

// seccompNotif and seccompResp are those of linux/seccomp.h.
type seccompNotif struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type seccompResp struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// Next lets one call go on that waits for it.
func (w *Echoes) Next() error {
	var n seccompNotif
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(w.fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); e != 0 {
		if e == unix.ENOENT || e == unix.EINTR { // who waited was killed
			return nil
		}
		return fmt.Errorf("hear of an echo socket: %w", e)
	}
	if uint32(n.args[1])&0xf == unix.SOCK_RAW || n.args[0] == unix.AF_PACKET {
		w.raw = true
	} else {
		w.ping = true
	}
	r := seccompResp{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(w.fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
	if e == unix.EINVAL { // before Linux 5.5 it cannot be let go on
		r.errno, r.flags = -int32(unix.EPERM), 0
		_, _, e = unix.Syscall(unix.SYS_IOCTL, uintptr(w.fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
	}
	if e != 0 && e != unix.ENOENT {
		return fmt.Errorf("let an echo socket be made: %w", e)
	}
	return nil
}

// Asked says what sockets were asked for so far.
func (w *Echoes) Asked() (ping, raw bool) { return w.ping, w.raw }

// Close ends the watch; calls that it would tell of fail from then on.
func (w *Echoes) Close() error { return unix.Close(w.fd) }
