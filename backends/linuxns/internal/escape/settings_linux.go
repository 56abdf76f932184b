package escape

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const corePattern = "sys/kernel/core_pattern"

// settings are kernel-wide switches that a view must not turn.
var settings = []probe{
	{"core_pattern", func(Fixture) (Verdict, string) { return rewrite("/proc/" + corePattern) }},
	{"modprobe path", func(Fixture) (Verdict, string) { return rewrite("/proc/sys/kernel/modprobe") }},
	{"poweroff_cmd", func(Fixture) (Verdict, string) { return rewrite("/proc/sys/kernel/poweroff_cmd") }},
	{"vm.overcommit_memory", func(Fixture) (Verdict, string) { return rewrite("/proc/sys/vm/overcommit_memory") }},
	{"fs.file-max", func(Fixture) (Verdict, string) { return rewrite("/proc/sys/fs/file-max") }},
	{"fs.suid_dumpable", func(Fixture) (Verdict, string) { return rewrite("/proc/sys/fs/suid_dumpable") }},
	{"kernel.randomize_va_space", func(Fixture) (Verdict, string) { return rewrite("/proc/sys/kernel/randomize_va_space") }},
	{"irq affinity", func(Fixture) (Verdict, string) { return open("/proc/irq/default_smp_affinity") }},
	{"sysrq-trigger", func(Fixture) (Verdict, string) { return open("/proc/sysrq-trigger") }},
	{"mm knob in sysfs", func(Fixture) (Verdict, string) { return open(mmKnob("/sys")) }},
	{"cgroup.freeze of the own cgroup", func(Fixture) (Verdict, string) { return open("/sys/fs/cgroup/cgroup.freeze") }},
	{"memory.max of the own cgroup", func(Fixture) (Verdict, string) { return open("/sys/fs/cgroup/memory.max") }},
	{"cgroup.kill of the own cgroup", func(Fixture) (Verdict, string) { return open("/sys/fs/cgroup/cgroup.kill") }},
	{"kcore", func(Fixture) (Verdict, string) { return read("/proc/kcore") }},
	{"kmsg", func(Fixture) (Verdict, string) { return read("/proc/kmsg") }},
	{"timer_list", func(Fixture) (Verdict, string) { return read("/proc/timer_list") }},
	{"kallsyms", kernelAddresses},
}

// rewrite writes a setting's present value back to it.
func rewrite(path string) (Verdict, string) {
	value, err := os.ReadFile(path)
	if err != nil {
		return judge(err, "")
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return judge(err, "")
	}
	defer unix.Close(fd)
	if len(value) == 0 {
		return Hole, "opened for writing"
	}
	_, err = unix.Write(fd, value)
	return judge(err, "written")
}

// open opens for writing and writes nothing.
func open(path string) (Verdict, string) {
	return openFlags(path, unix.O_WRONLY|unix.O_NONBLOCK)
}

func openFlags(path string, flags int) (Verdict, string) {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return judge(err, "opened")
}

// read opens for reading and reads nothing: the kernel's log loses what is read
// from it. A mask of /dev/null opens as well.
func read(path string) (Verdict, string) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return judge(err, "")
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return judge(err, "")
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) {
		return Denied, "masked"
	}
	return Hole, "opened"
}

// kernelAddresses: the file is world-readable, with zeroes for who may not know.
func kernelAddresses(Fixture) (Verdict, string) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return judge(err, "")
	}
	defer f.Close()
	line := make([]byte, 16)
	if n, _ := f.Read(line); n < len(line) {
		return Denied, "empty"
	}
	if strings.Trim(string(line), "0") == "" {
		return Denied, "zeroes"
	}
	return Hole, "addresses"
}

// mmKnob is a setting below a sysfs mount that every configuration with
// memory management has one of.
func mmKnob(sysfs string) string {
	for _, name := range []string{"transparent_hugepage/enabled", "ksm/run", "lru_gen/enabled", "swap/vma_ra_enabled", "page_idle/bitmap"} {
		if path := sysfs + "/kernel/mm/" + name; exists(path) {
			return path
		}
	}
	return sysfs + "/kernel/uevent_helper"
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
