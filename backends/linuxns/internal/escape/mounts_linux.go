package escape

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mounts try to reach kernel settings through a mount of the view's own
// making: a second instance of a kernel filesystem, or an old one without what
// covers it.
var mounts = []probe{
	{"remount /proc/sys rw, core_pattern", remountProcSys},
	{"umount /proc/sys, core_pattern", func(Fixture) (Verdict, string) {
		return apart(func() (Verdict, string) {
			if err := unix.Unmount("/proc/sys", unix.MNT_DETACH); err != nil {
				return judge(err, "")
			}
			return rewrite("/proc/" + corePattern)
		})
	}},
	{"bind /proc without its masks, core_pattern", func(Fixture) (Verdict, string) {
		return bound("/proc", func(dir string) (Verdict, string) { return rewrite(dir + "/" + corePattern) })
	}},
	{"bind /proc without its masks, irq affinity", func(Fixture) (Verdict, string) {
		return bound("/proc", func(dir string) (Verdict, string) { return open(dir + "/irq/default_smp_affinity") })
	}},
	{"new proc, core_pattern", func(Fixture) (Verdict, string) {
		return mounted("proc", "", func(dir string) (Verdict, string) { return rewrite(dir + "/" + corePattern) })
	}},
	{"new proc, sysrq-trigger", func(Fixture) (Verdict, string) {
		return mounted("proc", "", func(dir string) (Verdict, string) { return open(dir + "/sysrq-trigger") })
	}},
	{"remount /sys rw, mm knob", remountSys},
	{"new sysfs, mm knob", func(Fixture) (Verdict, string) {
		return mounted("sysfs", "", func(dir string) (Verdict, string) { return open(mmKnob(dir)) })
	}},
	{"devtmpfs", func(Fixture) (Verdict, string) { return mounted("devtmpfs", "", visible) }},
	{"debugfs", func(Fixture) (Verdict, string) { return mounted("debugfs", "", visible) }},
	{"tracefs", func(Fixture) (Verdict, string) { return mounted("tracefs", "", visible) }},
	{"securityfs", func(Fixture) (Verdict, string) { return mounted("securityfs", "", visible) }},
	{"ext4 of a block node", func(f Fixture) (Verdict, string) { return blockMount(f.BlockNode) }},
	{"cgroup v1 devices.allow", func(Fixture) (Verdict, string) {
		return mounted("cgroup", "devices", func(dir string) (Verdict, string) { return open(dir + "/devices.allow") })
	}},
	{"cgroup v1 release_agent", func(Fixture) (Verdict, string) {
		return mounted("cgroup", "pids", func(dir string) (Verdict, string) { return open(dir + "/release_agent") })
	}},
	{"new cgroup v1 hierarchy", func(Fixture) (Verdict, string) {
		return mounted("cgroup", "none,name=netsandbox-escape", visible)
	}},
	{"cgroup2, memory.max of its root", func(Fixture) (Verdict, string) {
		return mounted("cgroup2", "", func(dir string) (Verdict, string) { return open(dir + "/memory.max") })
	}},
	{"umount /dev", func(Fixture) (Verdict, string) { return unmounted("/dev") }},
	{"umount /run", func(Fixture) (Verdict, string) { return unmounted("/run") }},
	{"umount /proc", func(Fixture) (Verdict, string) { return unmounted("/proc") }},
	{"umount /sys/firmware", func(Fixture) (Verdict, string) { return unmounted("/sys/firmware") }},
	{"tmpfs", func(Fixture) (Verdict, string) { return allowed(mounted("tmpfs", "size=4k", visible)) }},
	{"fsopen", func(Fixture) (Verdict, string) {
		fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
		return allowed(closing(fd, err))
	}},
	{"open_tree", func(Fixture) (Verdict, string) {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/etc", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		return allowed(closing(fd, err))
	}},
}

func closing(fd int, err error) (Verdict, string) {
	if err == nil {
		unix.Close(fd)
	}
	return judge(err, "OK")
}

func visible(string) (Verdict, string) { return Hole, "mounted" }

// mounted runs look with a new filesystem on a scratch directory.
func mounted(fstype, data string, look func(dir string) (Verdict, string)) (Verdict, string) {
	return apart(func() (Verdict, string) {
		return scratch(func(dir string) (Verdict, string) {
			if err := unix.Mount("escape", dir, fstype, unix.MS_NOSUID, data); err != nil {
				return judge(err, "")
			}
			defer unix.Unmount(dir, unix.MNT_DETACH)
			return look(dir)
		})
	})
}

// bound runs look with a bind of src, without what is mounted below it.
func bound(src string, look func(dir string) (Verdict, string)) (Verdict, string) {
	return apart(func() (Verdict, string) {
		return scratch(func(dir string) (Verdict, string) {
			if err := unix.Mount(src, dir, "", unix.MS_BIND, ""); err != nil {
				return judge(err, "")
			}
			defer unix.Unmount(dir, unix.MNT_DETACH)
			return look(dir)
		})
	})
}

func unmounted(path string) (Verdict, string) {
	return apart(func() (Verdict, string) { return judge(unix.Unmount(path, unix.MNT_DETACH), "unmounted") })
}

func remountProcSys(Fixture) (Verdict, string) {
	return apart(func() (Verdict, string) {
		err := unix.Mount("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND, "")
		if err == nil {
			return rewrite("/proc/" + corePattern)
		}
		return judge(err, "")
	})
}

func remountSys(Fixture) (Verdict, string) {
	return apart(func() (Verdict, string) {
		err := unix.Mount("", "/sys", "", unix.MS_REMOUNT|unix.MS_BIND, "")
		if err == nil {
			return open(mmKnob("/sys"))
		}
		return judge(err, "")
	})
}

// blockMount mounts read-only. A disk that the host has mounted read-write
// answers EBUSY then, which says that the driver was asked.
func blockMount(node string) (Verdict, string) {
	return apart(func() (Verdict, string) {
		return scratch(func(dir string) (Verdict, string) {
			err := unix.Mount(node, dir, "ext4", unix.MS_RDONLY, "")
			if err == nil {
				unix.Unmount(dir, unix.MNT_DETACH)
			}
			if err == unix.EBUSY {
				return Hole, "asked the disk"
			}
			return judge(err, "mounted "+filepath.Base(node))
		})
	})
}
