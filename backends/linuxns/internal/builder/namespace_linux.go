package builder

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// In runs f on a thread of its own inside another mount namespace. The thread
// leaves it before In returns, whenever it then dies: a thread in a mount
// namespace keeps everything in it mounted.
func In(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		home, err := os.Open("/proc/thread-self/ns/mnt")
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = enter(ns, f)
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNS); back != nil && err == nil {
			err = fmt.Errorf("leave mount namespace: %w", back)
		}
		done <- err
	}()
	return <-done
}

func enter(ns *os.File, f func() error) error {
	// Joining a mount namespace needs a root and working directory of one's own.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter mount namespace: %w", err)
	}
	return f()
}

// CloneIn returns a detached copy of a mount in another mount namespace. The
// calling thread, locked and in the namespace home, goes there and comes back.
func CloneIn(ns, home *os.File, path string, recursive bool) (int, error) {
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return -1, fmt.Errorf("enter the view's mount namespace: %w", err)
	}
	t, err := mounts.Clone(unix.AT_FDCWD, path, recursive)
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNS); back != nil {
		return -1, fmt.Errorf("return from the view's mount namespace: %w", back)
	}
	return t, err
}
