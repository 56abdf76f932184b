package canary

import (
	"fmt"
	"os"
	"runtime"

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

// Drop takes every capability from what the calling thread will start, for good,
// and locks the goroutine to it, so that a probe can only be started from there.
// The other threads start nothing: to take them along, one system call after
// the other over all of them, costs a tenth of a canary.
func Drop() error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL { // above the last one the kernel has
			return nil
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
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
