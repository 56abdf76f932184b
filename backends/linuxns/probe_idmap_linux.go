package linuxns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// unlayered are filesystems that no view has a layer of, so it does not matter
// whether their ids can be mapped.
var unlayered = map[string]bool{
	"autofs": true, "binfmt_misc": true, "bpf": true, "cgroup": true, "cgroup2": true, "configfs": true,
	"debugfs": true, "devpts": true, "devtmpfs": true, "efivarfs": true, "fusectl": true, "hugetlbfs": true,
	"mqueue": true, "nsfs": true, "proc": true, "pstore": true, "ramfs": true, "rpc_pipefs": true,
	"securityfs": true, "sysfs": true, "tracefs": true,
}

// distant are filesystems whose server may be dead. They are not asked: the
// kernel maps no ids on them.
var distant = map[string]bool{
	"9p": true, "afs": true, "ceph": true, "cifs": true, "fuse.sshfs": true, "glusterfs": true,
	"nfs": true, "nfs4": true, "smb3": true, "virtiofs": true,
}

// idmapFindings asks each filesystem that would become a layer whether its ids
// can be mapped. It is decided by mount table alone which are asked.
func idmapFindings(ctx context.Context) []backends.Finding {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return []backends.Finding{{Name: "idmap", Status: "degraded", Detail: err.Error()}}
	}
	var found []backends.Finding
	seen := map[[2]int]bool{}
	for _, m := range mounts {
		device := [2]int{m.Major, m.Minor}
		if unlayered[m.FSType] || seen[device] || kernelPlace(m.Mountpoint) {
			continue
		}
		seen[device] = true
		f := backends.Finding{Name: "idmap " + change.Escape(m.Mountpoint), Status: "ok", Detail: m.FSType}
		err := errors.New("network filesystems are not asked")
		if !distant[m.FSType] {
			err = limited(ctx, func(context.Context) error { return tryIdmap(m.Mountpoint) })
		}
		if err != nil {
			f.Status, f.Detail = "degraded", m.FSType+": "+err.Error()
			f.Fix = "it is read-only in views; exclude it with a policy if that is too much"
			if m.Mountpoint == "/" {
				f.Fix = "views run in the weaker mode \"caps\"; a root on ext4, xfs or btrfs and Linux 5.19 give the stronger"
			}
		}
		found = append(found, f)
	}
	return found
}

// kernelPlace reports a path that a view makes anew.
func kernelPlace(path string) bool {
	for _, top := range []string{"/proc", "/sys", "/dev", "/run"} {
		if path == top || strings.HasPrefix(path, top+"/") {
			return true
		}
	}
	return false
}

// tryIdmap maps the ids of a detached clone, which is gone with its descriptor.
func tryIdmap(path string) error {
	return held(shiftedUserNS(), func(pid int) error {
		user, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user")
		if err != nil {
			return fmt.Errorf("open user namespace: %w", err)
		}
		defer user.Close()
		tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("clone mount: %w", err)
		}
		defer unix.Close(tree)
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(user.Fd())}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("map ids: %w", err)
		}
		return nil
	})
}

// cgroup2Mount returns where the unified hierarchy is mounted.
func cgroup2Mount() (string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil {
		return "", fmt.Errorf("read mounts: %w", err)
	}
	if len(mounts) == 0 {
		return "", errors.New("cgroup2 is not mounted")
	}
	return mounts[0].Mountpoint, nil
}
