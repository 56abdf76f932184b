package harden

import (
	"testing"

	"golang.org/x/sys/unix"
)

// verdict runs the filter on one call as the kernel does.
func verdict(t *testing.T, f []unix.SockFilter, arch, nr uint32, arg0 uint64) uint32 {
	t.Helper()
	data := map[uint32]uint32{offNr: nr, offArch: arch, offArg0: uint32(arg0)}
	var acc uint32
	for pc := 0; pc < len(f); pc++ {
		in := f[pc]
		hit := false
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			v, ok := data[in.K]
			if !ok {
				t.Fatalf("instruction %d loads from %d", pc, in.K)
			}
			acc = v
			continue
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			hit = acc == in.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			hit = acc >= in.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			hit = acc&in.K != 0
		default:
			t.Fatalf("instruction %d: %+v", pc, in)
		}
		if hit {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	t.Fatal("the filter ends without a verdict")
	return 0
}

func TestFilter(t *testing.T) {
	const (
		allow = unix.SECCOMP_RET_ALLOW
		kill  = unix.SECCOMP_RET_KILL_PROCESS
	)
	eperm, enosys := errno(unix.EPERM), errno(unix.ENOSYS)
	for _, tc := range []struct {
		name          string
		arch, nr      uint32
		arg0          uint64
		shifted, caps uint32
	}{
		{"an ordinary call", arch, unix.SYS_OPENAT, 0, allow, allow},
		{"a call of the machine", arch, unix.SYS_REBOOT, 0, eperm, eperm},
		{"the last of the list", arch, denied[len(denied)-1], 0, eperm, eperm},
		{"io_uring, which would pass every filter by", arch, unix.SYS_IO_URING_SETUP, 0, eperm, eperm},
		{"mount is locked by a user namespace or closed", arch, unix.SYS_MOUNT, 0, allow, eperm},
		{"setns likewise", arch, unix.SYS_SETNS, 0, allow, eperm},
		{"a descriptor of another process", arch, unix.SYS_PIDFD_GETFD, 0, allow, eperm},
		{"another architecture", arch ^ 1, unix.SYS_OPENAT, 0, kill, kill},
		{"a socket", arch, unix.SYS_SOCKET, unix.AF_INET, allow, allow},
		{"a socket to the hypervisor", arch, unix.SYS_SOCKET, unix.AF_VSOCK, errno(unix.EAFNOSUPPORT), errno(unix.EAFNOSUPPORT)},
		{"a call after socket whose argument looks like it", arch, unix.SYS_CONNECT, unix.AF_VSOCK, allow, allow},
		{"a thread", arch, unix.SYS_CLONE, unix.CLONE_VM | unix.CLONE_THREAD, allow, allow},
		{"a user namespace", arch, unix.SYS_CLONE, unix.CLONE_NEWUSER | unix.CLONE_NEWNET, allow, eperm},
		{"a user namespace by unshare", arch, unix.SYS_UNSHARE, unix.CLONE_NEWUSER, allow, eperm},
		{"a network namespace by unshare", arch, unix.SYS_UNSHARE, unix.CLONE_NEWNET, allow, allow},
		{"flags that no filter sees", arch, unix.SYS_CLONE3, 0, allow, enosys},
	} {
		for name, want := range map[string]uint32{Shifted: tc.shifted, Caps: tc.caps} {
			m, err := Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			if got := verdict(t, m.filter(), tc.arch, tc.nr, tc.arg0); got != want {
				t.Errorf("%s, %s: %#x, want %#x", name, tc.name, got, want)
			}
		}
	}
	if foreign != 0 {
		m, _ := Lookup(Shifted)
		if got := verdict(t, m.filter(), arch, foreign|unix.SYS_REBOOT, 0); got != enosys {
			t.Errorf("a call by its other number: %#x", got)
		}
	}
}

func TestFilterIsShortEnough(t *testing.T) {
	for _, name := range []string{Shifted, Caps} {
		m, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(m.filter()); n > 4096 { // BPF_MAXINSNS
			t.Errorf("%s: %d instructions", name, n)
		}
	}
}

func TestLookup(t *testing.T) {
	if _, err := Lookup("none"); err == nil {
		t.Error("an unknown mode was found")
	}
	if m, err := Lookup(Unhardened); err != nil || len(m.Deny)+len(m.Drop) > 0 || m.UserNS() || m.Masks {
		t.Errorf("%+v, %v", m, err)
	}
}
