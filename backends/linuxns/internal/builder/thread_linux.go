package builder

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Thread builds views one after the other. It keeps what it is under (limits of
// cgroup v1 belong to threads, and a PID 1 inherits those of the thread that
// forks it) and goes back to the host's namespaces after every build. Its zero
// value is not useful.
type Thread struct {
	work chan func()
	home []namespace
	root int // the host's root directory
}

// namespace is one that a build leaves and the next has to come back to.
type namespace struct {
	kind int
	fd   int
}

// NewThread starts a thread, which ends with Close. With prepare it is told its
// number first.
func NewThread(prepare func(tid int) error) (*Thread, error) {
	t := &Thread{work: make(chan func()), root: -1}
	ready := make(chan error)
	go func() {
		// Never unlocked: the thread has namespaces and limits of its own and dies
		// with the goroutine.
		runtime.LockOSThread()
		err := t.open()
		if err == nil && prepare != nil {
			err = prepare(unix.Gettid())
		}
		ready <- err
		for f := range t.work {
			f()
		}
		for _, n := range t.home {
			unix.Close(n.fd)
		}
		unix.Close(t.root)
	}()
	if err := <-ready; err != nil {
		t.Close()
		return nil, fmt.Errorf("start builder: %w", err)
	}
	return t, nil
}

// Close ends the thread when it is done with what it does.
func (t *Thread) Close() { close(t.work) }

// open remembers the host's namespaces.
func (t *Thread) open() error {
	// Joining a mount namespace takes a root and working directory of one's own.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	for _, n := range []struct {
		kind int
		name string
	}{{unix.CLONE_NEWNS, "mnt"}, {unix.CLONE_NEWNET, "net"}, {unix.CLONE_NEWCGROUP, "cgroup"}, {unix.CLONE_NEWPID, "pid"}} {
		fd, err := unix.Open("/proc/thread-self/ns/"+n.name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s namespace: %w", n.name, err)
		}
		t.home = append(t.home, namespace{n.kind, fd})
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open root directory: %w", err)
	}
	t.root = root
	return nil
}

// goHome ends in the directory in which the thread began: joining a mount
// namespace leads onto whatever is mounted on top of its root.
func (t *Thread) goHome() error {
	for _, n := range t.home {
		if err := unix.Setns(n.fd, n.kind); err != nil {
			return fmt.Errorf("return to the host's namespaces: %w", err)
		}
	}
	if err := unix.Fchdir(t.root); err != nil {
		return fmt.Errorf("return to the host's root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("return to the host's root: %w", err)
	}
	return nil
}

// Build makes a view and returns when its PID 1 serves. When ctx ends first, the
// thread must not be used again; what was begun is taken down as soon as the
// kernel lets go of it.
func (t *Thread) Build(ctx context.Context, r Request) (*View, error) {
	type result struct {
		v   *View
		err error
	}
	done := make(chan result)
	job := func() {
		var res result
		res.v, res.err = (&build{Request: r}).run()
		// At once: a thread left in the new mount namespace would keep its overlays
		// mounted.
		if err := t.goHome(); err != nil {
			if res.v != nil {
				res.v.Abandon()
			}
			res = result{nil, errors.Join(res.err, err)}
		}
		select {
		case done <- res:
		case <-ctx.Done():
			if res.v != nil {
				res.v.Abandon()
			}
		}
	}
	select {
	case t.work <- job:
	case <-ctx.Done():
		return nil, fmt.Errorf("build view: %w", ctx.Err())
	}
	select {
	case res := <-done:
		return res.v, res.err
	case <-ctx.Done():
		return nil, fmt.Errorf("build view: %w", ctx.Err())
	}
}

// Build makes one view on a thread of its own.
func Build(ctx context.Context, r Request) (*View, error) {
	t, err := NewThread(nil)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return t.Build(ctx, r)
}
