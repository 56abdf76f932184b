package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// node is a machine around a script's host: a network namespace without a name,
// gone with the test that made it.
type node struct{ ns *os.File }

func newNode(t testing.TB) *node {
	t.Helper()
	type made struct {
		ns  *os.File
		err error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- made{err: err}
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		done <- made{f, err}
	}()
	m := <-done
	if m.err != nil {
		t.Fatalf("make a node: %v", m.err)
	}
	t.Cleanup(func() { m.ns.Close() })
	n := &node{m.ns}
	// Addresses would be tentative for the first second or two.
	if err := errors.Join(n.sysctl("ipv6/conf/all/accept_dad=0", "ipv6/conf/default/accept_dad=0"), n.ip("link set lo up")); err != nil {
		t.Fatal(err)
	}
	return n
}

// path names the namespace to ip(8).
func (n *node) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.ns.Fd()) }

// do runs f on a thread of its own in the node. Sockets and processes that f
// makes belong to the node; goroutines that it starts do not run there.
func (n *node) do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := unix.Setns(int(n.ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// ip runs commands of ip(8) in the node.
func (n *node) ip(lines ...string) error {
	return n.do(func() error {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip: %w: %s", err, out)
		}
		return nil
	})
}

// sysctl sets values below /proc/sys/net: "ipv4/ip_forward=1".
func (n *node) sysctl(settings ...string) error {
	return n.do(func() error {
		for _, s := range settings {
			name, value, _ := strings.Cut(s, "=")
			// Those of the thread's namespace: procfs looks when a file is opened.
			if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}
