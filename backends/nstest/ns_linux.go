package nstest

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NS is the private place of one test. Its zero value is not useful.
type NS struct {
	net, mnt *os.File
	start    map[string]bool // mount ids at the start
	wg       sync.WaitGroup
}

// New moves the test's goroutine, on a thread of its own, into a fresh network
// and mount namespace with loopback up and every mount private. What was mounted
// in it is unmounted before the test's temporary directories are removed.
func New(t testing.TB, reqs ...Req) *NS {
	t.Helper()
	Require(t, append([]Req{Root, NetNS}, reqs...)...)
	ns := enter(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS)
	if err := loopback(); err != nil {
		t.Fatalf("nstest: %v", err)
	}
	if err := freshSys(); err != nil {
		t.Fatalf("nstest: %v", err)
	}
	ns.start = mountIDs(t)
	return ns
}

// NewMount is [New] with a mount namespace only; the network stays the
// caller's.
func NewMount(t testing.TB, reqs ...Req) *NS {
	t.Helper()
	Require(t, append([]Req{Root}, reqs...)...)
	return enter(t, unix.CLONE_NEWNS)
}

func enter(t testing.TB, flags int) *NS {
	t.Helper()
	// The first TempDir of a test registers its removal. Clean-ups run last in,
	// first out, so ours, which unmounts, comes before it: removing a directory
	// with a mount in it would remove what is mounted.
	t.TempDir()
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if unix.Gettid() == unix.Getpid() {
		t.Fatal("nstest: on the main thread; call nstest.Main from TestMain")
	}
	if err := unix.Unshare(flags); err != nil {
		t.Fatalf("nstest: unshare: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatalf("nstest: make mounts private: %v", err)
	}
	ns := &NS{start: mountIDs(t)}
	for _, f := range []struct {
		to   **os.File
		name string
	}{{&ns.net, "net"}, {&ns.mnt, "mnt"}} {
		var err error
		if *f.to, err = os.Open("/proc/thread-self/ns/" + f.name); err != nil {
			t.Fatalf("nstest: %v", err)
		}
	}
	own := flags&unix.CLONE_NEWNET != 0
	t.Cleanup(func() { ns.leave(t, own) })
	return ns
}

// leave ends what still lives in the namespaces and unmounts what was mounted.
// A process that outlives its test is a bug of the test or of what it tests.
func (n *NS) leave(t testing.TB, ownNet bool) {
	n.wg.Wait()
	// A test may have entered another place after this one; that one is gone by
	// now, but the thread is still in it.
	if err := n.enterAgain(); err != nil {
		t.Errorf("nstest: %v", err)
		return
	}
	for _, p := range inhabitants(n.mnt, n.net, ownNet) {
		t.Errorf("nstest: process %d (%s) outlived the test in its namespace", p.pid, p.comm)
		if err := unix.Kill(p.pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			t.Errorf("nstest: kill %d: %v", p.pid, err)
		}
	}
	mounts, err := readMounts()
	if err != nil {
		t.Errorf("nstest: %v", err)
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		if m := mounts[i]; !n.start[m.id] {
			if err := unix.Unmount(m.point, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
				t.Errorf("nstest: unmount %s: %v", m.point, err)
			}
		}
	}
	n.net.Close()
	n.mnt.Close()
}

// Net returns a descriptor of the network namespace; it is closed with the test.
func (n *NS) Net() *os.File { return n.net }

// Mnt returns a descriptor of the mount namespace; it is closed with the test.
func (n *NS) Mnt() *os.File { return n.mnt }

// Go runs f in the test's namespaces on a goroutine and thread of its own. The
// test waits for it at its end.
func (n *NS) Go(f func()) {
	started := make(chan error)
	n.wg.Go(func() {
		err := n.Join()
		started <- err
		if err == nil {
			f()
		}
	})
	if err := <-started; err != nil {
		panic(fmt.Sprintf("nstest: %v", err))
	}
}

// Run runs a subtest in the test's namespaces; a plain t.Run would be back in
// the machine's own.
func (n *NS) Run(t *testing.T, name string, f func(t *testing.T)) bool {
	t.Helper()
	return t.Run(name, func(t *testing.T) {
		if err := n.Join(); err != nil {
			t.Fatalf("nstest: %v", err)
		}
		f(t)
	})
}

// Join moves the calling goroutine, on a thread of its own that is never given
// back, into the namespaces. setns(2) refuses a mount namespace to a thread
// that shares its working directory with others, hence the unshare.
func (n *NS) Join() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare working directory: %w", err)
	}
	return n.enterAgain()
}

func (n *NS) enterAgain() error {
	if err := unix.Setns(int(n.net.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("join network namespace: %w", err)
	}
	if err := unix.Setns(int(n.mnt.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("join mount namespace: %w", err)
	}
	return nil
}

func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	return nil
}

// freshSys mounts a sysfs of the new network namespace, as ip-netns(8) does:
// /sys/class/net belongs to the namespace the mount was made in. The cgroup
// mounts below it are carried over.
func freshSys() error {
	cg, err := unix.OpenTree(unix.AT_FDCWD, "/sys/fs/cgroup",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil && err != unix.ENOENT {
		return fmt.Errorf("clone cgroup mounts: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	if cg < 0 {
		return nil
	}
	defer unix.Close(cg)
	if err := unix.MoveMount(cg, "", unix.AT_FDCWD, "/sys/fs/cgroup", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move cgroup mounts: %w", err)
	}
	return nil
}

// apart runs f on a throw-away thread with the given namespaces of its own.
func apart(flags int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(flags); err != nil {
			done <- fmt.Errorf("unshare: %w", err)
			return
		}
		if flags&unix.CLONE_NEWNS != 0 {
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				done <- fmt.Errorf("make mounts private: %w", err)
				return
			}
		}
		done <- f()
	}()
	return <-done
}
