package builder

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// mergedRun shows the /run of the view that a canary looks at. An overlay over
// it would be dead sockets, and those of the view's daemons are what a canary
// is there to reach; connecting to one needs no write. So it is the view's own,
// read-only, with a place of the canary's own for locks.
func (b *build) mergedRun(place int) error {
	t, err := CloneIn(b.Merged, b.self, "/run", true)
	if err != nil {
		return err
	}
	err = unix.MountSetattr(t, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		unix.Close(t)
		return fmt.Errorf("make the view's /run read-only: %w", err)
	}
	if err := mounts.Attach(t, place); err != nil {
		return err
	}
	return b.put("run/lock", func() (int, error) {
		return mounts.Tmpfs(unix.MOUNT_ATTR_NODEV, b.Mode.Shift, "1777", b.bounds()...)
	})
}

// bounds limit what a canary can write: its uppers lie in scratch, in memory. It
// is far more than a program needs to show that it works.
func (b *build) bounds() []string {
	if !b.Throwaway {
		return nil
	}
	return []string{"size=512m", "nr_inodes=100k"}
}

// powerless takes setuid bits and file capabilities from a throw-away view. With
// an empty bounding set they give nothing anyway, but execve(2) refuses a program
// whose file capabilities it cannot give in full; from a nosuid mount it runs the
// program without them: ping(8), or an agent's node(1) that may bind low ports.
func (b *build) powerless() error {
	if !b.Throwaway {
		return nil
	}
	err := unix.MountSetattr(b.root, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID})
	if err != nil {
		return fmt.Errorf("take setuid bits from the view: %w", err)
	}
	return nil
}
