package demonet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// World runs cmd as PID 1 of fresh mount, process, network and IPC namespaces
// and waits for it. Everything that it started ends with it, which is looked at,
// and it ends with us.
func World(cmd *exec.Cmd) error {
	// The death signal is that of the thread that forked, not of the process, so
	// the thread must live as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", cmd.Process.Pid))
	err = errors.Join(err, cmd.Wait())
	left, e := inhabitants(ns)
	if len(left) > 0 {
		e = fmt.Errorf("processes outlived the world: %v", left)
	}
	return errors.Join(err, e)
}

// Furnish makes the mounts of the world private to it and gives it its own /proc
// and /sys. It is the first thing that PID 1 of a [World] does.
//
// A place on an overlay, as in a container, cannot hold the layers of a view, so
// there a tmpfs covers it. It is not the rule because tmpfs cannot be idmapped
// before Linux 6.3.
func Furnish(place string) error {
	if os.Getpid() != 1 {
		return errors.New("furnish demo: not in a world of its own")
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if errors.Is(err, unix.EINVAL) {
		return errors.New("/ is not a mount, as in a chroot, and a view cannot be made there: use a machine, a container or systemd-nspawn")
	}
	if err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := sys(); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(place, &fs); err != nil {
		return fmt.Errorf("look at %s: %w", place, err)
	}
	if fs.Type != unix.OVERLAYFS_SUPER_MAGIC {
		// A mount of its own keeps what a transaction hides at the top of its target's
		// mount inside the place.
		if err := unix.Mount(place, place, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount the demo's place on itself: %w", err)
		}
		return nil
	}
	if err := unix.Mount("netsandbox-demo", place, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount a place for the demo on %s: %w", place, err)
	}
	return nil
}

// sys mounts a /sys of the world's own network, with the machine's cgroups,
// which a new sysfs does not show.
func sys() error {
	groups, err := unix.OpenTree(unix.AT_FDCWD, "/sys/fs/cgroup", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("keep cgroups: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if groups < 0 {
		return nil
	}
	defer unix.Close(groups)
	if err := unix.MoveMount(groups, "", unix.AT_FDCWD, "/sys/fs/cgroup", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move cgroups: %w", err)
	}
	return nil
}

// Reap starts cmd and reaps everything that is left to PID 1 until cmd ends,
// whose status it returns. Without it what the story's processes leave behind
// would stay as zombies, and somebody waits for their end.
func Reap(cmd *exec.Cmd) (status int, err error) {
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the demo: %w", err)
		case pid != cmd.Process.Pid:
		case ws.Signaled():
			return 128 + int(ws.Signal()), nil
		default:
			return ws.ExitStatus(), nil
		}
	}
}
