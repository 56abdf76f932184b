package harden

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Shift is where the user namespace of a view begins on the host. 2^31 keeps
// every id below 2^31-1, with room for the dynamic ranges of service managers
// and containers, and is no real account's.
const (
	Shift = 1 << 31
	Ids   = 1<<31 - 1
)

// Mode is one way to isolate a view.
type Mode struct {
	Name string
	// Shift is added to an id of the host to get the kernel's id of it inside; 0
	// when there is no user namespace.
	Shift int
	// Masks covers what of /proc and /sys is guarded by plain ownership only.
	Masks bool
	// Deny lists system calls answered with EPERM.
	Deny []uint32
	// NoUserNS closes the way to a user namespace of one's own.
	NoUserNS bool
	// Drop lists capabilities taken from everything in the view.
	Drop []int
}

// UserNS reports whether the view has a user namespace of its own.
func (m Mode) UserNS() bool { return m.Shift != 0 }

// The modes by name.
const (
	Shifted    = "shifted"
	Caps       = "caps"
	Unhardened = "unhardened"
)

// Lookup returns the mode called name.
func Lookup(name string) (Mode, error) {
	switch name {
	case Shifted:
		// sys_rawio and sys_module have no power in a user namespace. Without them
		// service managers do not even try debugfs and module mounts, and sys_boot
		// keeps reboot(2) from ending the pid namespace.
		return Mode{
			Name: Shifted, Shift: Shift, Deny: denied,
			Drop: []int{unix.CAP_SYS_RAWIO, unix.CAP_SYS_MODULE, unix.CAP_SYS_BOOT},
		}, nil
	case Caps:
		// Mounts are not locked here, so the whole mount family must be closed: a
		// mask that can be unmounted is none.
		return Mode{
			Name: Caps, Masks: true, NoUserNS: true,
			Deny: slices.Concat(denied, mounting, reaching), Drop: dropped,
		}, nil
	case Unhardened:
		return Mode{Name: Unhardened}, nil
	}
	return Mode{}, fmt.Errorf("unknown isolation mode %q", name)
}

// mounting is the family of calls that change a mount namespace or enter one.
var mounting = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
}

// reaching is what takes from a process that a pidfd names, in whatever pid
// namespace that is; SO_PEERPIDFD gives one of the client at the other end of an
// exec. A user namespace refuses the rest, here the same uid would do.
var reaching = []uint32{unix.SYS_PIDFD_GETFD}

// dropped is what goes without a user namespace. What stays is what sudo, dpkg,
// nft, ping and strace were seen to need.
var dropped = []int{
	unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME,
	unix.CAP_SYS_ADMIN, unix.CAP_SYS_PACCT, unix.CAP_SYS_TTY_CONFIG, unix.CAP_SYS_RESOURCE,
	unix.CAP_SYS_NICE, unix.CAP_MKNOD, unix.CAP_LEASE, unix.CAP_LINUX_IMMUTABLE,
	unix.CAP_IPC_LOCK, unix.CAP_SYSLOG, unix.CAP_AUDIT_CONTROL, unix.CAP_AUDIT_READ,
	unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE, unix.CAP_WAKE_ALARM, unix.CAP_BLOCK_SUSPEND,
	unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_DAC_READ_SEARCH,
}
