package canary

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
)

// Seal makes the settings of the network read-only, which the masks of a view
// leave open. A canary's network is the host's in the jail, and without a user
// namespace uid 0 is the owner of those files: the kernel lets the owner write
// most of them without any capability (net_ctl_permissions).
func Seal(mode harden.Mode) error {
	if !mode.Masks {
		return nil
	}
	const dead = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", "/proc/sys/net", "", dead, ""); err != nil {
		return fmt.Errorf("make network settings read-only: %w", err)
	}
	return nil
}
