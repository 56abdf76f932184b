package harden

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// What a process with the kernel's uid 0 could read or turn through plain file
// permissions. None of it is needed with a user namespace: there the files
// belong to somebody else however they are mounted, and masks would only keep a
// service from mounting a proc of its own.
var (
	maskedFiles = []string{
		"/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/proc/timer_list",
		"/proc/sched_debug", "/proc/latency_stats", "/proc/kpagecount", "/proc/kpageflags",
		"/proc/kpagecgroup", "/proc/kallsyms", "/proc/vmallocinfo",
	}
	maskedDirs = []string{
		"/proc/acpi", "/proc/scsi", "/sys/firmware", "/sys/fs/cgroup", "/sys/fs/bpf",
		"/sys/fs/pstore", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security",
		"/sys/dev/block", "/sys/devices/virtual/powercap",
	}
	frozen = []string{
		"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/asound",
	}
)

// Mask covers them in the caller's mount namespace.
func (m Mode) Mask() error {
	if !m.Masks {
		return nil
	}
	for _, p := range maskedFiles {
		if err := present(p, func() error { return unix.Mount("/dev/null", p, "", unix.MS_BIND, "") }); err != nil {
			return fmt.Errorf("mask %s: %w", p, err)
		}
	}
	const dead = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, p := range maskedDirs {
		err := present(p, func() error { return unix.Mount("tmpfs", p, "tmpfs", dead, "size=4k,mode=555") })
		if err != nil {
			return fmt.Errorf("mask %s: %w", p, err)
		}
	}
	for _, p := range frozen {
		err := present(p, func() error {
			if err := unix.Mount(p, p, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
				return err
			}
			return unix.Mount("", p, "", unix.MS_BIND|unix.MS_REMOUNT|dead, "")
		})
		if err != nil {
			return fmt.Errorf("make %s read-only: %w", p, err)
		}
	}
	return openNetSysctls()
}

// openNetSysctls puts the network's own settings back within reach: they belong
// to the view's network namespace. A bind of a directory below the read-only
// one would be read-only as well, so it comes from a second instance of proc.
func openNetSysctls() error {
	ctx, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open proc: %w", err)
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigCreate(ctx); err != nil {
		return fmt.Errorf("create proc: %w", err)
	}
	inst, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	defer unix.Close(inst)
	net, err := unix.OpenTree(inst, "sys/net", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("clone network settings: %w", err)
	}
	defer unix.Close(net)
	if err := unix.MoveMount(net, "", unix.AT_FDCWD, "/proc/sys/net", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach network settings: %w", err)
	}
	return nil
}

// present runs f when the path exists: which of them do depends on how the
// kernel was built.
func present(p string, f func() error) error {
	if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return f()
}
