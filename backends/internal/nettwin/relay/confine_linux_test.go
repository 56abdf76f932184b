package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// probeArg makes the test binary confine itself and say what it still can: the
// restrictions are for good, so they need a process of their own.
const probeArg = "confine-probe"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == probeArg {
		if err := probe(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	nstest.Main(m)
}

// attempts are things a relay may and may not do, by name.
var attempts = map[string]func() error{
	"dial on loopback": func() error {
		c, err := net.Dial("udp", "127.0.0.1:9")
		if err == nil {
			c.Close()
		}
		return err
	},
	"start a thread": func() error {
		done := make(chan error)
		go func() { done <- nil }()
		return <-done
	},
	"a mark":                                option(unix.AF_INET, unix.SOCK_STREAM, 0, unix.SOL_SOCKET, unix.SO_MARK),
	"a source that is not the host's":       option(unix.AF_INET, unix.SOCK_STREAM, 0, unix.SOL_IP, unix.IP_TRANSPARENT),
	"an IPv6 source that is not the host's": option(unix.AF_INET6, unix.SOCK_DGRAM, 0, unix.SOL_IPV6, unix.IPV6_TRANSPARENT),
	"a raw socket for ICMP":                 rawSocket(unix.AF_INET, unix.IPPROTO_ICMP, unix.SOL_IP, unix.IP_RECVERR),
	"a raw socket for ICMPv6":               rawSocket(unix.AF_INET6, unix.IPPROTO_ICMPV6, unix.SOL_IPV6, unix.IPV6_RECVERR),
	"headers of its own making":             rawSocket(unix.AF_INET, unix.IPPROTO_ICMP, unix.SOL_IP, unix.IP_HDRINCL),
	"IPv6 headers of its own making":        rawSocket(unix.AF_INET6, unix.IPPROTO_ICMPV6, unix.SOL_IPV6, unix.IPV6_HDRINCL),
	"a raw socket for TCP":                  rawSocket(unix.AF_INET, unix.IPPROTO_TCP, unix.SOL_IP, unix.IP_RECVERR),
	"a raw socket for anything":             rawSocket(unix.AF_INET, unix.IPPROTO_RAW, unix.SOL_IP, unix.IP_RECVERR),
	"a packet socket by its old name": func() error {
		_, err := unix.Socket(unix.AF_INET, unix.SOCK_PACKET, unix.ETH_P_ALL)
		return err
	},
	"open a file": func() error { _, err := os.Open("/etc/passwd"); return err },
	"make a file": func() error { _, err := os.Create("/x"); return err },
	"list /proc":  func() error { _, err := os.ReadDir("/proc"); return err },
	"execute": func() error {
		return unix.Exec("/proc/self/exe", []string{"x"}, nil)
	},
	"fork": func() error {
		_, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		return e
	},
	"clone3": func() error {
		var args [88]byte
		_, _, e := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), uintptr(len(args)), 0)
		return e
	},
	"a unix socket":     family(unix.AF_UNIX, unix.SOCK_STREAM),
	"a netlink socket":  family(unix.AF_NETLINK, unix.SOCK_RAW),
	"a packet socket":   family(unix.AF_PACKET, unix.SOCK_RAW),
	"a vsock socket":    family(unix.AF_VSOCK, unix.SOCK_STREAM),
	"a socket pair":     func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
	"another namespace": func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"mount":             func() error { return unix.Mount("tmpfs", "/", "tmpfs", 0, "") },
	"trace":             func() error { return unix.PtraceAttach(1) },
	"change user":       func() error { return unix.Setresuid(1, 1, 1) },
	"raise a limit":     func() error { return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: 1 << 40, Max: 1 << 40}) },
	"use a privileged port": func() error {
		c, err := net.ListenPacket("udp", "127.0.0.1:7")
		if err == nil {
			c.Close()
		}
		return err
	},
}

func rawSocket(af, proto, level, name int) func() error {
	return option(af, unix.SOCK_RAW, proto, level, name)
}

// option opens a socket and sets an option on it.
func option(af, typ, proto, level, name int) func() error {
	return func() error {
		fd, err := unix.Socket(af, typ|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.SetsockoptInt(fd, level, name, 1)
	}
}

func family(af, typ int) func() error {
	return func() error { _, err := unix.Socket(af, typ, 0); return err }
}

func probe() error {
	if err := confine(); err != nil {
		return err
	}
	out := map[string]int{}
	for name, try := range attempts {
		var e unix.Errno
		if err := try(); err != nil && !errors.As(err, &e) {
			return fmt.Errorf("%s: %w", name, err)
		}
		out[name] = int(e)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func TestConfinement(t *testing.T) {
	nstest.New(t)
	cmd := exec.Command("/proc/self/exe", probeArg)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]unix.Errno{}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]unix.Errno{
		"dial on loopback": 0, "start a thread": 0, "a mark": 0,
		"a raw socket for ICMP": 0, "a raw socket for ICMPv6": 0,
		"open a file": unix.EACCES, "list /proc": unix.EACCES, "make a file": unix.EACCES,
		"clone3": unix.ENOSYS, "use a privileged port": unix.EACCES,
	} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
		delete(got, name)
	}
	for name, e := range got {
		if e != unix.EPERM {
			t.Errorf("%s: %v, want EPERM", name, e)
		}
	}
}
