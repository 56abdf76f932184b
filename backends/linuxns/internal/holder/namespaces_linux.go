package holder

import (
	"errors"
	"fmt"
	"os"

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
	const self = "/proc/self/exe"
	t, err := mounts.CloneDir(self)
	if errors.Is(err, unix.EINVAL) {
		// It was started out of another mount namespace, whose mounts cannot be
		// cloned here. By name it must be the same file.
		t, err = sameFile(self)
	}
	if err != nil {
		return -1, fmt.Errorf("open own program: %w", err)
	}
	if err := readable(t); err != nil {
		unix.Close(t)
		return -1, fmt.Errorf("open own program: %w", err)
	}
	return t, nil
}

func sameFile(self string) (int, error) {
	name, err := os.Readlink(self)
	if err != nil {
		return -1, err
	}
	t, err := mounts.CloneDir(name)
	if err != nil {
		return -1, err
	}
	var here, run unix.Stat_t
	if err := errors.Join(unix.Fstat(t, &here), unix.Stat(self, &run)); err != nil {
		unix.Close(t)
		return -1, err
	}
	if here.Dev != run.Dev || here.Ino != run.Ino {
		unix.Close(t)
		return -1, fmt.Errorf("%s is not the program that runs", name)
	}
	return t, nil
}

// readable seals the program's mount and makes sure that the view's root, who is
// somebody else, can execute it.
func readable(t int) error {
	if err := mounts.Set(t, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(t, &st); err != nil {
		return err
	}
	if st.Mode&0o005 != 0o005 {
		return fmt.Errorf("it has mode %04o, and a view's root is somebody else: make it readable and executable for all", st.Mode&0o7777)
	}
	return nil
}
