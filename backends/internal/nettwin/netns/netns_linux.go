package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Current opens the network namespace of the calling thread. A goroutine that
// is locked to its thread gets the one it works in.
func Current() (*os.File, error) {
	// /proc/self would name the namespace of the first thread.
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return f, nil
}

// New makes a namespace owned by the caller's user namespace. It lives as long
// as the file, or a socket or process in it.
func New() (*os.File, error) {
	var f *os.File
	err := thread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare network namespace: %w", err)
		}
		var err error
		f, err = Current()
		return err
	})
	return f, err
}

// Do runs f on a throw-away thread in the namespace ns and waits for it.
// Sockets and files that f opens keep belonging to ns.
func Do(ns int, f func() error) error {
	return thread(func() error {
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

func thread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		done <- f()
	}()
	return <-done
}
