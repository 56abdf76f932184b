package userns

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// foreign is a network namespace that a user namespace of its own has.
func foreign(t *testing.T) *os.File {
	ns, _ := nstest.Shifted(t)
	return ns
}

func TestForeign(t *testing.T) {
	owner, err := Foreign(int(foreign(t).Fd()))
	must(t, err)
	if owner == nil {
		t.Fatal("a namespace that a user namespace owns has no owner")
	}
	must(t, owner.Close())
	own, err := netns.New()
	must(t, err)
	defer own.Close()
	if owner, err = Foreign(int(own.Fd())); owner != nil || err != nil {
		t.Errorf("a namespace of ours has the owner %v, %v", owner, err)
	}
	if _, err = Foreign(0); err == nil {
		t.Error("what is no namespace has an owner")
	}
}

// TestCalls looks from here at what calls made over there did.
func TestCalls(t *testing.T) {
	ns := foreign(t)
	owner, err := Foreign(int(ns.Fd()))
	must(t, err)
	defer owner.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	must(t, unix.SetsockoptInt(fds[1], unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	must(t, Send(owner, fds[0], []byte("from there")))
	b, oob := make([]byte, 64), make([]byte, 64)
	n, m, _, _, err := unix.Recvmsg(fds[1], b, oob, 0)
	must(t, err)
	ms, err := unix.ParseSocketControlMessage(oob[:m])
	must(t, err)
	who, err := unix.ParseUnixCredentials(&ms[0])
	must(t, err)
	if string(b[:n]) != "from there" || int(who.Pid) == os.Getpid() {
		t.Errorf("got %q of %+v, want it of a child", b[:n], who)
	}
	must(t, SetOption(owner, fds[0], unix.SOL_SOCKET, unix.SO_PRIORITY, []byte{5, 0, 0, 0}))
	if got, err := unix.GetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PRIORITY); got != 5 || err != nil {
		t.Errorf("the option is %d, %v; want 5", got, err)
	}
	// Root there is nobody here: what takes the machine's root is refused.
	if err := SetOption(owner, fds[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, []byte{0, 0, 1, 0}); !errors.Is(err, unix.EPERM) {
		t.Errorf("a right of the machine's root: %v, want EPERM", err)
	}
	if err := Send(owner, -1, []byte{0}); !errors.Is(err, unix.EBADF) {
		t.Errorf("no descriptor: %v, want EBADF", err)
	}
	if err := Send(ns, fds[0], []byte{0}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no user namespace: %v, want EINVAL", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
