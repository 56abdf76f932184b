package linuxns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
)

var processChecks = []check{
	{
		name: "privileges", without: "missing",
		fix: "run as root, outside of a container or in one with CAP_SYS_ADMIN and CAP_NET_ADMIN",
		try: tryPrivileges,
	},
	{
		name: "user namespace", without: "degraded",
		fix: "raise user.max_user_namespaces" + weaker,
		try: func(context.Context, string) (string, error) {
			user, _, err := rawfork.Namespaces(harden.Shift, harden.Ids, false)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("ids from 0 map to %d and up", harden.Shift), unix.Close(user)
		},
	},
	{
		name: "pidfd", without: "missing",
		fix: "Linux 5.3 or later",
		try: tryPidfd,
	},
	{
		name: "seccomp", without: "missing",
		fix: "a kernel with CONFIG_SECCOMP_FILTER",
		try: trySeccomp,
	},
	{
		name: "landlock", without: "degraded",
		fix: "Linux 6.12 or later with landlock among its security modules; without it canaries cannot use UNIX sockets at all",
		try: tryLandlock,
	},
	{
		name: "cgroup", without: "degraded",
		fix: "mount cgroup2; without it a view's processes are found by their namespace and cannot be frozen",
		try: tryCgroup,
	},
}

func tryPrivileges(context.Context, string) (string, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return "", fmt.Errorf("read capabilities: %w", err)
	}
	var lacks []string
	for _, c := range []struct {
		bit  int
		name string
	}{
		{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
		{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"},
		{unix.CAP_MKNOD, "CAP_MKNOD"},
		{unix.CAP_SETUID, "CAP_SETUID"},
		{unix.CAP_SETGID, "CAP_SETGID"},
		{unix.CAP_CHOWN, "CAP_CHOWN"},
		{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
		{unix.CAP_FOWNER, "CAP_FOWNER"},
		{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
	} {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			lacks = append(lacks, c.name)
		}
	}
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("running as uid %d", os.Geteuid())
	}
	if lacks != nil {
		return "", fmt.Errorf("root without %s", strings.Join(lacks, ", "))
	}
	return "root with the capabilities a view is made with", nil
}

// held runs f with the pid of a child that stands still. The child is this
// program, stopped by the trap that a traced execve(2) ends with, so not one
// of its instructions is ever run; it dies with the thread that made it.
func held(attr *syscall.SysProcAttr, f func(pid int) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr.Ptrace, attr.Pdeathsig = true, unix.SIGKILL
	c := exec.Command("/proc/self/exe")
	c.SysProcAttr = attr
	if err := c.Start(); err != nil {
		return fmt.Errorf("start a child: %w", err)
	}
	err := f(c.Process.Pid)
	if kill := c.Process.Kill(); kill != nil && !errors.Is(kill, os.ErrProcessDone) {
		err = errors.Join(err, kill)
	}
	c.Wait() // it was killed
	return err
}

func tryPidfd(context.Context, string) (string, error) {
	return "opens, signals, polls", held(&syscall.SysProcAttr{}, func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return fmt.Errorf("open a pidfd: %w", err)
		}
		defer unix.Close(fd)
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
			return fmt.Errorf("signal by pidfd: %w", err)
		}
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(answerWithin.Milliseconds()))
		if err == nil && n == 0 {
			err = errors.New("the child did not end")
		}
		if err != nil {
			return fmt.Errorf("wait by pidfd: %w", err)
		}
		return nil
	})
}

// trySeccomp refuses one system call to the calling thread, which ends soon.
func trySeccomp(context.Context, string) (string, error) {
	refuse := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETPGID, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := installFilter(refuse); err != nil {
		return "", err
	}
	if _, err := unix.Getpgid(0); !errors.Is(err, unix.EPERM) {
		return "", fmt.Errorf("a refused system call answered %v", err) //nolint:errorlint // nil says that it was not refused
	}
	return "filters are obeyed", nil
}

func tryCgroup(ctx context.Context, _ string) (string, error) {
	root, err := cgroup2Mount()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, fmt.Sprintf("netsandbox-doctor-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a cgroup: %w", err)
	}
	defer unix.Rmdir(dir)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	child := &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	err = held(child, func(pid int) error {
		if err := writeControl(dir, "cgroup.freeze", "1"); err != nil {
			return err
		}
		if err := awaitEvent(ctx, dir, "frozen 1"); err != nil {
			return err
		}
		if err := writeControl(dir, "cgroup.freeze", "0"); err != nil {
			return err
		}
		if err := writeControl(dir, "cgroup.kill", "1"); err != nil { // Linux 5.14
			return err
		}
		return awaitEvent(ctx, dir, "populated 0")
	})
	return "cgroup2 at " + root + ": joins, freezes, kills", err
}

func writeControl(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

// awaitEvent waits for a line of cgroup.events; the kernel announces a change
// of the file by POLLPRI.
func awaitEvent(ctx context.Context, dir, line string) error {
	f, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		buf := make([]byte, 256)
		n, err := f.ReadAt(buf, 0)
		if n == 0 {
			return fmt.Errorf("read cgroup.events: %w", err)
		}
		if strings.Contains("\n"+string(buf[:n]), "\n"+line+"\n") {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %q in cgroup.events: %w", line, ctx.Err())
		}
		p := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(p, 100); err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for cgroup.events: %w", err)
		}
	}
}
