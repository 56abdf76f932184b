package holder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// mirrorTime bounds the making of a twin.
const mirrorTime = 30 * time.Second

// newNet makes a network namespace that the initial user namespace owns.
func newNet() (int, error) {
	type result struct {
		fd  int
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- result{-1, fmt.Errorf("make network namespace: %w", err)}
			return
		}
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			err = fmt.Errorf("open network namespace: %w", err)
		}
		done <- result{fd, err}
	}()
	r := <-done
	return r.fd, r.err
}

// twinOptions are those of the view's twin, and of every canary's.
func (h *Holder) twinOptions() nettwin.Options {
	return nettwin.Options{
		Relay: append(slices.Clone(h.spec.Relay), h.rec.Relay...), IDShift: uint32(h.mode.Shift),
		Ways: h.ways, Stderr: os.Stderr,
	}
}

// makeTwin fills the network namespace from the host's network.
func (h *Holder) makeTwin() error {
	ctx, cancel := context.WithTimeout(context.Background(), mirrorTime)
	defer cancel()
	t, err := nettwin.Mirror(ctx, h.net, h.twinOptions())
	if err != nil {
		return err
	}
	h.twin = t
	return h.listenInside()
}

// renewTwin makes network namespace and twin anew. The old namespace is not
// reused: what the inside left there would have to be known to be removed. The
// caller holds h.mu and the view is stopped.
func (h *Holder) renewTwin() error {
	fresh := newNet
	if h.mode.UserNS() {
		fresh = func() (int, error) { return rawfork.NetIn(h.user) }
	}
	fd, err := fresh()
	if err != nil {
		return err
	}
	ways, err := h.openWays()
	if err != nil {
		unix.Close(fd)
		return err
	}
	old, oldTwin, oldWays := h.net, h.twin, h.ways
	h.net, h.ways = fd, ways
	if err := h.makeTwin(); err != nil {
		unix.Close(fd)
		h.net, h.twin, h.ways = old, oldTwin, oldWays
		return errors.Join(err, ways.Close())
	}
	unix.Close(old)
	// What the old twin had the host do goes with it. A control view that stands on
	// it and still runs meets a limit; those that come later get another.
	return errors.Join(oldTwin.Close(), oldWays.Close())
}

// compareTwin adds what the inside changed of the network. Everything of it
// blocks a plan: no change of the network has a type yet.
func (h *Holder) compareTwin(r *wire.Reply) error {
	ds, err := h.twin.Difference()
	if err != nil {
		return err
	}
	for _, d := range ds {
		r.Lines = append(r.Lines, d.String())
		r.Blocked = append(r.Blocked, change.Blocker{
			What: "twin-" + string(d.Kind), Subject: change.Escape(d.String()),
			Reason: "a change of the network cannot be applied yet", Fix: h.resetNetwork(),
		})
	}
	return h.compareResolver(r)
}

func (h *Holder) resetNetwork() string { return "netsandbox reset " + h.spec.Name + " --network" }

// compareResolver adds the resolver's files that were changed in the view's
// /run. They are looked at in the builder's mount namespace, where nothing that
// the inside mounted is in the way.
func (h *Holder) compareResolver(r *wire.Reply) error {
	if h.view != nil && h.view.alive() {
		h.keepRun(h.view.ns)
	}
	if h.run < 0 {
		return nil
	}
	defer func() {
		if h.view != nil { // a rebuild takes its own
			h.dropRun()
		}
	}()
	was, err := h.dir.LoadResolver()
	if err != nil {
		return err
	}
	var paths []string
	for p := range was {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		now, err := sumIn(h.run, strings.TrimPrefix(p, "/run/"))
		if err != nil {
			return fmt.Errorf("look at %s in the view: %w", p, err)
		}
		if now == was[p] {
			continue
		}
		r.Lines = append(r.Lines, "dns "+p+" "+now)
		r.Blocked = append(r.Blocked, change.Blocker{
			What: "dns", Subject: change.Escape(p),
			Reason: "a resolver's file in /run was changed, and /run is not part of any layer", Fix: h.resetNetwork(),
		})
	}
	return nil
}

// sumIn returns the content hash of a file below a directory, "absent" when
// there is none and "no file" when something else has its place.
func sumIn(dir int, rel string) (string, error) {
	fd, err := unix.Openat2(dir, rel, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return "absent", nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENXIO):
		return "no file", nil
	case err != nil:
		return "", err
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "no file", nil
	}
	return builder.SumFile(f)
}

// keepRun takes a detached clone of the view's /run.
func (h *Holder) keepRun(ns *os.File) {
	h.dropRun()
	_ = builder.In(ns, func() error {
		t, err := mounts.Clone(unix.AT_FDCWD, "/run", false)
		if err == nil {
			h.run = t
		}
		return err
	})
}

func (h *Holder) dropRun() {
	if h.run >= 0 {
		unix.Close(h.run)
		h.run = -1
	}
}

// addRelay opens loopback ports of the host, now and for every later twin.
func (h *Holder) addRelay(ports []uint16) error {
	if err := h.twin.AddRelay(ports...); err != nil {
		return err
	}
	for _, p := range ports {
		if !slices.Contains(h.rec.Relay, p) {
			h.rec.Relay = append(h.rec.Relay, p)
		}
	}
	return h.record()
}
