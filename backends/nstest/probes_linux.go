package nstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

func probeRoot() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("running as uid %d", uid)
	}
	return apart(unix.CLONE_NEWNS, func() error { return nil })
}

func probeNetNS() error { return apart(unix.CLONE_NEWNET, loopback) }

// probeOverlay makes an overlay on a tmpfs and writes through it.
func probeOverlay() error {
	return scratch(func(dir string) error {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			return fmt.Errorf("mount tmpfs: %w", err)
		}
		for _, d := range []string{"lower", "upper", "work", "merged"} {
			if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
				return err
			}
		}
		opt := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", dir, dir, dir)
		if err := unix.Mount("overlay", dir+"/merged", "overlay", 0, opt); err != nil {
			return fmt.Errorf("mount overlay: %w", err)
		}
		if err := os.Mkdir(dir+"/merged/probe", 0o755); err != nil {
			return err
		}
		_, err := os.Stat(dir + "/upper/probe")
		return err
	})
}

func probeTUN() error {
	return apart(unix.CLONE_NEWNET, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open /dev/net/tun: %w", err)
		}
		defer unix.Close(fd)
		req, err := unix.NewIfreq("nstest0")
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return fmt.Errorf("make a TAP: %w", err)
		}
		return nil
	})
}

func probeNFT() error {
	return apart(unix.CLONE_NEWNET, func() error {
		c, err := nftables.New()
		if err != nil {
			return fmt.Errorf("open nf_tables: %w", err)
		}
		c.AddTable(&nftables.Table{Name: "nstest", Family: nftables.TableFamilyINet})
		if err := c.Flush(); err != nil {
			return fmt.Errorf("add a table: %w", err)
		}
		return nil
	})
}

// userNS starts a child that waits in a user namespace with a shifted map, and
// hands f its pid. Only a single-threaded process may unshare a user namespace,
// so the probe cannot use its own thread.
func userNS(f func(pid int) error) error {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1 << 31, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start in a user namespace: %w", err)
	}
	err = f(cmd.Process.Pid)
	in.Close()
	return errors.Join(err, cmd.Wait())
}

func probeUserNS() error { return userNS(func(int) error { return nil }) }

func probeIDMap() error {
	return userNS(func(pid int) error {
		user, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user")
		if err != nil {
			return err
		}
		defer user.Close()
		return scratch(func(dir string) error {
			fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			if err != nil {
				return fmt.Errorf("clone mount: %w", err)
			}
			defer unix.Close(fd)
			attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(user.Fd())}
			if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
				return fmt.Errorf("map ids of %s: %w", dir, err)
			}
			return nil
		})
	})
}

func probeLandlock() error {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return fmt.Errorf("ask for the Landlock version: %w", errno)
	}
	if abi < 1 {
		return fmt.Errorf("version %d of Landlock is none", abi)
	}
	return nil
}

// probeCgroup2 makes and removes a cgroup, and wants it to be killable
// (cgroup.kill, Linux 5.14).
func probeCgroup2() error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.fs != "cgroup2" {
			continue
		}
		dir := filepath.Join(m.point, fmt.Sprintf("nstest-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
		_, err := os.Stat(dir + "/cgroup.kill")
		return errors.Join(err, os.Remove(dir))
	}
	return errors.New("no cgroup2 mount")
}

// scratch runs f with an empty directory in a mount namespace of its own.
func scratch(f func(dir string) error) error {
	dir, err := os.MkdirTemp("", "nstest-")
	if err != nil {
		return err
	}
	err = apart(unix.CLONE_NEWNS, func() error { return f(dir) })
	return errors.Join(err, os.Remove(dir))
}
