package canary

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
)

// Seal makes the settings of the network read-only, which the masks of a view
// leave open. A canary's network is the host's in the jail, and without a user
// namespace its uid 0 is the kernel's, who may write most of them without any
// capability (test_perm in fs/proc/proc_sysctl.c).
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

// OpenPing lets every group of the view's user namespace use ping sockets, in a
// network that this namespace owns: a canary has no raw ones. From outside the
// range cannot be set, for it ends where a shifted namespace begins. It must be
// called before capabilities are dropped; where it is refused, in the jail, a
// ping does not work.
func OpenPing(mode harden.Mode) {
	if !mode.UserNS() {
		return // the twin's own setting does
	}
	_ = os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte(fmt.Sprintf("0 %d", harden.Ids-1)), 0)
}
