package world

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
)

const (
	// mirrorTime bounds the making of a network.
	mirrorTime = 30 * time.Second
	// linger is how long a network is kept for the next canary. Making one costs
	// more than the rest of a world, and a check runs many; it is short because
	// what is kept is the host's network of the moment it was made.
	linger = time.Second
)

// Networks are pristine network namespaces, set up like the host is, with and
// without the way out. Canaries that run at the same time share one: they have
// no capability, so none can change it for another.
type Networks struct {
	mu   sync.Mutex
	kept map[bool]*network // by cut
}

type network struct {
	opt   nettwin.Options
	users int
	made  chan struct{} // closed when the rest is set
	fd    int
	twin  *nettwin.Twin
	err   error
}

// use returns a network that the user namespace owns, or the initial one when it
// is -1; done must be called when no process is in it.
func (n *Networks) use(ctx context.Context, user int, opt nettwin.Options) (_ *network, done func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.kept[opt.Cut]
	if w != nil && !w.as(opt) {
		n.forget(w)
		w = nil
	}
	if w == nil {
		w = &network{opt: opt, made: make(chan struct{})}
		if n.kept == nil {
			n.kept = map[bool]*network{}
		}
		n.kept[opt.Cut] = w
		// Others may be waiting for it when its first user has gone.
		go w.make(context.WithoutCancel(ctx), user)
	}
	w.users++
	n.mu.Unlock()
	select {
	case <-w.made:
		err = w.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	n.mu.Lock()
	if err == nil {
		return w, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.leave(w)
		}, nil
	}
	if ctx.Err() == nil && n.kept[opt.Cut] == w { // the next canary gets another try
		delete(n.kept, opt.Cut)
	}
	n.leave(w)
	return nil, nil, err
}

// leave gives a network up; the last user's is kept for a moment. The caller
// holds n.mu.
func (n *Networks) leave(w *network) {
	if w.users--; w.users > 0 {
		return
	}
	if n.kept[w.opt.Cut] != w {
		go w.close()
		return
	}
	time.AfterFunc(linger, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if w.users == 0 && n.kept[w.opt.Cut] == w {
			n.forget(w)
		}
	})
}

// forget keeps a network no longer. One that has users goes with the last of
// them. The caller holds n.mu.
func (n *Networks) forget(w *network) {
	delete(n.kept, w.opt.Cut)
	if w.users == 0 {
		go w.close()
	}
}

// as reports whether a network is what these options would make. The ways of the
// host that one was made with are closed when the environment's network is made
// anew, and a port that was relayed since is missing in it.
func (w *network) as(opt nettwin.Options) bool {
	return w.opt.Cut == opt.Cut && w.opt.Ways == opt.Ways && w.opt.IDShift == opt.IDShift && slices.Equal(w.opt.Relay, opt.Relay)
}

func (w *network) make(ctx context.Context, user int) {
	defer close(w.made)
	ctx, cancel := context.WithTimeout(ctx, mirrorTime)
	defer cancel()
	if user >= 0 {
		w.fd, w.err = rawfork.NetIn(user)
	} else {
		w.fd, w.err = freshNet()
	}
	if w.err != nil {
		return
	}
	if w.twin, w.err = nettwin.Mirror(ctx, w.fd, w.opt); w.err != nil {
		unix.Close(w.fd)
	}
}

// close waits for a network that is still being made. What it could complain
// about concerns a relay that nobody uses any more.
func (w *network) close() {
	<-w.made
	if w.err == nil {
		_ = w.twin.Close()
		unix.Close(w.fd)
	}
}

// freshNet returns a network namespace of the initial user namespace; it lives by
// its descriptor.
func freshNet() (fd int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
	}()
	<-done
	if err != nil {
		return -1, fmt.Errorf("make a network namespace: %w", err)
	}
	return fd, nil
}
