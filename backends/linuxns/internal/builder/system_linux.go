package builder

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// nodes are the devices a view has. They are made, not bound: a bind would be
// the host's inode, with the host's owner.
var nodes = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3},
	{"zero", 1, 5},
	{"full", 1, 7},
	{"random", 1, 8},
	{"urandom", 1, 9},
	{"tty", 5, 0},
	{"net/tun", 10, 200},
}

var devLinks = [][2]string{
	{"/proc/self/fd", "fd"},
	{"/proc/self/fd/0", "stdin"},
	{"/proc/self/fd/1", "stdout"},
	{"/proc/self/fd/2", "stderr"},
	{"pts/ptmx", "ptmx"}, // service managers refuse private devices without it
}

// system puts what a view has of its own into the tree.
func (b *build) system(plan mountplan.Plan) error {
	if err := b.put("dev", b.dev); err != nil {
		return fmt.Errorf("make /dev: %w", err)
	}
	if err := b.put("dev/shm", func() (int, error) {
		return mounts.Tmpfs(unix.MOUNT_ATTR_NODEV, b.Mode.Shift, "1777", b.bounds()...)
	}); err != nil {
		return fmt.Errorf("make /dev/shm: %w", err)
	}
	if err := b.runDir(); err != nil {
		return fmt.Errorf("make /run: %w", err)
	}
	if err := b.shims(); err != nil {
		return fmt.Errorf("cover clients of services: %w", err)
	}
	for _, c := range plan.Covers {
		if err := b.cover(c, nil); err != nil {
			return fmt.Errorf("cover %s: %w", c, err)
		}
	}
	for _, c := range plan.State {
		if err := b.cover(c, &stub{}); err != nil {
			return fmt.Errorf("cover %s: %w", c, err)
		}
	}
	return b.powerless()
}

// dev makes a detached /dev. It is filled before it is attached, so no path of
// the view is involved.
func (b *build) dev() (int, error) {
	t, err := mounts.Tmpfs(0, b.Mode.Shift, "755", "size=1m")
	if err != nil {
		return -1, err
	}
	if err := b.fillDev(t); err != nil {
		unix.Close(t)
		return -1, err
	}
	return t, nil
}

func (b *build) fillDev(t int) error {
	for _, d := range []string{"net", "pts", "shm"} {
		if err := b.mkdir(t, d, 0o755); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := unix.Mknodat(t, n.name, unix.S_IFCHR|0o666, int(unix.Mkdev(n.major, n.minor))); err != nil {
			return fmt.Errorf("make node %s: %w", n.name, err)
		}
		if err := unix.Fchmodat(t, n.name, 0o666, 0); err != nil { // whatever the umask
			return fmt.Errorf("set mode of %s: %w", n.name, err)
		}
		if err := b.own(t, n.name); err != nil {
			return err
		}
	}
	for _, l := range devLinks {
		if err := unix.Symlinkat(l[0], t, l[1]); err != nil {
			return fmt.Errorf("link %s: %w", l[1], err)
		}
		if err := b.own(t, l[1]); err != nil {
			return err
		}
	}
	return nil
}

// own gives an entry of a private filesystem to the view's root.
func (b *build) own(dir int, name string) error {
	if err := unix.Fchownat(dir, name, b.Mode.Shift, b.Mode.Shift, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set owner of %s: %w", name, err)
	}
	return nil
}

func (b *build) mkdir(dir int, name string, mode uint32) error {
	if err := unix.Mkdirat(dir, name, mode); err != nil {
		return fmt.Errorf("make directory %s: %w", name, err)
	}
	if err := unix.Fchmodat(dir, name, mode, 0); err != nil {
		return fmt.Errorf("set mode of %s: %w", name, err)
	}
	return b.own(dir, name)
}
