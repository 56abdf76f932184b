package linuxns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var fileChecks = []check{
	{
		name: "overlay", without: "missing",
		fix: "load the overlay module: modprobe overlay",
		try: func(context.Context, string) (string, error) {
			return inScratch(os.TempDir(), func(dir string) (string, error) {
				if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
					return "", fmt.Errorf("mount tmpfs: %w", err)
				}
				defer unix.Unmount(dir, unix.MNT_DETACH)
				return "create, delete, rename, whiteout", tryOverlay(dir)
			})
		},
	},
	{
		name: "state root", without: "missing",
		fix: "put the state directory on a local ext4, xfs or btrfs filesystem with --state-dir",
		try: tryStateRoot,
	},
}

// refusedUppers are filesystems on which a mount may work and data is lost: an
// overlay on an overlay hides the lower one's whiteouts, and NFS has neither
// the extended attributes nor stable directory entries.
var refusedUppers = map[int64]string{
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC:       "nfs",
	0x65735546:                 "fuse", // FUSE_SUPER_MAGIC
	0xff534d42:                 "cifs", // CIFS_SUPER_MAGIC
	0x01021997:                 "9p",   // V9FS_MAGIC
	unix.MSDOS_SUPER_MAGIC:     "vfat",
	unix.RAMFS_MAGIC:           "ramfs",
	unix.SQUASHFS_MAGIC:        "squashfs",
}

// tryStateRoot makes an overlay whose upper is on the state root's filesystem.
// Before the first environment that directory does not exist yet; then its
// nearest ancestor answers for it.
func tryStateRoot(_ context.Context, stateRoot string) (string, error) {
	dir, err := existing(stateRoot)
	if err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", fmt.Errorf("ask for the filesystem of %s: %w", dir, err)
	}
	if name, refused := refusedUppers[fs.Type]; refused {
		return "", fmt.Errorf("%s is on %s, which cannot hold the layers of a view", dir, name)
	}
	detail := stateRoot + " can hold layers"
	if fs.Type == unix.TMPFS_MAGIC {
		detail += ", until the next reboot: it is in memory (tmpfs)"
	}
	return inScratch(dir, func(scratch string) (string, error) { return detail, tryOverlay(scratch) })
}

// existing returns the path or its nearest ancestor that is there.
func existing(path string) (string, error) {
	for {
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, os.ErrNotExist) || path == filepath.Dir(path) {
			return "", err
		}
		path = filepath.Dir(path)
	}
}

// inScratch runs f with an empty directory below parent and in a mount
// namespace of its own, and removes the directory.
func inScratch(parent string, f func(dir string) (string, error)) (string, error) {
	dir, err := os.MkdirTemp(parent, ".netsandbox-doctor-")
	if err != nil {
		return "", fmt.Errorf("make a scratch directory: %w", err)
	}
	// Outside the thread's mount namespace nothing was ever mounted below it.
	defer os.RemoveAll(dir)
	if err := ownMounts(); err != nil {
		return "", err
	}
	return f(dir)
}

// ownMounts gives the calling thread a mount namespace. A thread that shares
// its working directory with others may have one, but not join another later.
func ownMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if errors.Is(err, unix.EINVAL) {
		return errNoRootMount
	}
	if err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return nil
}

// tryOverlay does in dir what a view does all day.
func tryOverlay(dir string) (err error) {
	for _, d := range []string{"lower", "lower/dir", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, f := range []string{"lower/kept", "lower/gone"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("lower\n"), 0o644); err != nil {
			return err
		}
	}
	merged := filepath.Join(dir, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work,"+
		"redirect_dir=nofollow,metacopy=off,index=off,xino=auto", dir)
	if err := unix.Mount("overlay", merged, "overlay", unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(merged, 0)) }()

	if err := os.WriteFile(merged+"/new", []byte("new\n"), 0o600); err != nil {
		return fmt.Errorf("create through overlay: %w", err)
	}
	if err := os.Chmod(merged+"/kept", 0o600); err != nil {
		return fmt.Errorf("copy up: %w", err)
	}
	// metacopy=on would leave a file of the right size without data here.
	if b, err := os.ReadFile(dir + "/upper/kept"); err != nil || string(b) != "lower\n" {
		return fmt.Errorf("copy up left %q in the upper: %w", b, err)
	}
	if err := os.Rename(merged+"/kept", merged+"/moved"); err != nil {
		return fmt.Errorf("rename through overlay: %w", err)
	}
	// A directory that redirects is an empty one in the upper plus an attribute.
	if err := os.Rename(merged+"/dir", merged+"/dir2"); !errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("rename of a lower directory must be refused with EXDEV, got %v", err) //nolint:errorlint // nil says that it was not refused
	}
	if err := os.Remove(merged + "/gone"); err != nil {
		return fmt.Errorf("delete through overlay: %w", err)
	}
	for _, name := range []string{"gone", "kept"} {
		if err := isWhiteout(filepath.Join(dir, "upper", name)); err != nil {
			return err
		}
	}
	return nil
}

func isWhiteout(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("look for the whiteout: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		return fmt.Errorf("a deletion left mode %o in the upper, not a whiteout", st.Mode)
	}
	return nil
}
