package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/upper"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// unlayered are the directories that a view has of its own.
var unlayered = []string{"/proc", "/sys", "/dev", "/run"}

func below(p, root string) bool {
	return p == root || root == "/" || strings.HasPrefix(p, strings.TrimSuffix(root, "/")+"/")
}

// stage puts a candidate into the layer through the merged mount: the kernel
// keeps no promise about an upper that is edited below it. It is done in the
// builder's mount namespace, which nothing inside can change. The caller holds
// h.mu.
func (h *Holder) stage(ctx context.Context, p change.Path, c backends.Candidate) error {
	if err := h.stageable(string(p)); err != nil {
		return err
	}
	v, err := h.ensure(ctx, false)
	if err != nil {
		return err
	}
	// What is there now gets its origin first: a file that is replaced has no
	// trace of what it was copied from.
	s := staging{path: string(p), shift: h.mode.Shift, uid: h.spec.UID, gid: h.spec.GID}
	in := func(f func() error) error {
		return builder.In(v.ns, func() error { return mounts.As(h.mode.Shift, f) })
	}
	if !c.Delete {
		// What is to be like an entry may be of any type now, or not be there.
		err := in(s.copyUp)
		if err != nil && c.Like == nil && (c.From == nil || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	if err := h.recordOrigins(); err != nil {
		return err
	}
	switch {
	case c.Delete:
		err = in(s.remove)
	case c.Like != nil:
		err = in(func() error { return s.become(c.Like, c.From) })
	case c.From != nil:
		err = in(func() error { return s.put(c.From) })
	}
	if err != nil {
		return err
	}
	if err := h.recordOrigins(); err != nil {
		return err
	}
	return upper.MarkStaged(h.spec.Dir, p)
}

// stageable checks the path against the environment and the host.
func (h *Holder) stageable(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
		return fmt.Errorf("%q is not the absolute path of a file", p)
	}
	if !below(p, h.spec.Base) {
		return backends.ErrOutsideBase
	}
	for _, d := range append([]string{h.spec.StateRoot}, unlayered...) {
		if below(p, d) {
			return fmt.Errorf("%s is not part of any layer", d)
		}
	}
	hidden, err := h.hidden()
	if err != nil {
		return err
	}
	for _, d := range hidden {
		if below(p, d) || below(d, p) {
			return fmt.Errorf("%s is hidden in the view", change.Escape(d))
		}
	}
	// The parent must be what it says, on the host too: a symlink there would
	// make the change one of another place.
	fd, err := unix.Openat2(unix.AT_FDCWD, path.Dir(p), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("a parent of it is a symlink: name the place it leads to")
	}
	if err == nil {
		unix.Close(fd)
	} else if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("look at its parent: %w", err)
	}
	return nil
}
