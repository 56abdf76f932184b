package holder

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
)

// namespaces makes what outlives every build: the user namespace of the view, a
// sibling of it with the same map for canaries, and the network namespace that
// the first one owns.
func (h *Holder) namespaces() error {
	var err error
	if h.exe, err = program(); err != nil {
		return err
	}
	name := h.rec.Mode
	if name == "" {
		name = h.spec.Mode
	}
	if name == "" || name == harden.Shifted {
		err := h.shifted()
		if err != nil && name == harden.Shifted {
			return err
		}
		if err == nil {
			name = harden.Shifted
		} else {
			name = harden.Caps
			h.notes = append(h.notes, "isolation falls back to dropped capabilities: "+err.Error())
		}
	}
	if h.mode, err = harden.Lookup(name); err != nil {
		return err
	}
	h.rec.Mode = name
	if !h.mode.UserNS() {
		if h.net, err = newNet(); err != nil {
			return err
		}
	}
	return h.makeTwin()
}

// shifted makes the namespaces of the default mode, if this machine can show its
// root and the layers with shifted ids. A detached copy of a mount is enough to
// find out.
func (h *Holder) shifted() error {
	user, net, err := rawfork.Namespaces(harden.Shift, harden.Ids, true)
	if err != nil {
		return err
	}
	for _, p := range []string{"/", h.dir.Path(envdir.Layers)} {
		if err := mappable(p, user); err != nil {
			unix.Close(user)
			unix.Close(net)
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	sibling, _, err := rawfork.Namespaces(harden.Shift, harden.Ids, false)
	if err != nil {
		unix.Close(user)
		unix.Close(net)
		return err
	}
	h.user, h.net, h.canaryUser = user, net, sibling
	return nil
}

func mappable(path string, user int) error {
	t, err := mounts.CloneDir(path)
	if err != nil {
		return err
	}
	defer unix.Close(t)
	return mounts.Idmap(t, user)
}

// program returns the running program through a read-only mount of its own: in
// a view without a user namespace, root could otherwise open /proc/1/exe for
// writing in the moment in which PID 1 ends, and it is the host's file.
func program() (int, error) {
	t, err := mounts.CloneDir("/proc/self/exe")
	if err != nil {
		return -1, fmt.Errorf("open own program: %w", err)
	}
	if err := mounts.Set(t, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID); err != nil {
		unix.Close(t)
		return -1, fmt.Errorf("open own program: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(t, &st); err != nil {
		unix.Close(t)
		return -1, fmt.Errorf("open own program: %w", err)
	}
	if st.Mode&0o005 != 0o005 {
		unix.Close(t)
		return -1, fmt.Errorf("start views: the netsandbox program has mode %04o, and the root of a view is somebody else: make it readable and executable for all", st.Mode&0o7777)
	}
	return t, nil
}
