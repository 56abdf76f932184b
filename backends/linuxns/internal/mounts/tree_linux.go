package mounts

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Clone returns a detached copy of the mount at path, seen from dir.
func Clone(dir int, path string, recursive bool) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_NO_AUTOMOUNT | unix.AT_SYMLINK_NOFOLLOW)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	fd, err := unix.OpenTree(dir, path, flags)
	if err != nil {
		return -1, fmt.Errorf("clone mount: %w", err)
	}
	return fd, nil
}

// CloneDir is [Clone] of a path that is the host's own and may be a symlink.
func CloneDir(path string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("clone mount: %w", err)
	}
	return fd, nil
}

// Idmap shifts every id of the detached tree by the map of a user namespace.
func Idmap(tree, userns int) error {
	err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns)})
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("map ids of mount: its filesystem cannot (%w)", err)
	}
	if err != nil {
		return fmt.Errorf("map ids of mount: %w", err)
	}
	return nil
}

// Set adds MOUNT_ATTR_ attributes to the mount.
func Set(tree int, attrs uint64) error {
	if attrs == 0 {
		return nil
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attrs}); err != nil {
		return fmt.Errorf("set attributes of mount: %w", err)
	}
	return nil
}

// Attach puts the detached tree on the place and closes it.
func Attach(tree, place int) error {
	defer unix.Close(tree)
	err := unix.MoveMount(tree, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("attach mount: %w", err)
	}
	return nil
}

// Place opens a path below root for attaching, without following a symlink in
// any part of it. With sameMount it does not cross into a mount either.
func Place(root int, path string, sameMount bool) (int, error) {
	how := unix.OpenHow{
		// No O_NOFOLLOW: with it a symlink as last element would be opened itself.
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if sameMount {
		how.Resolve |= unix.RESOLVE_NO_XDEV
	}
	fd, err := unix.Openat2(root, path, &how)
	if err != nil {
		return -1, fmt.Errorf("find %s in the view: %w", path, err)
	}
	return fd, nil
}

// New makes a detached mount of a filesystem with "key=value" options.
func New(fs string, attrs int, options ...string) (int, error) {
	ctx, err := unix.Fsopen(fs, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", fs, err)
	}
	defer unix.Close(ctx)
	for _, o := range append([]string{"source=netsandbox"}, options...) {
		k, v, _ := strings.Cut(o, "=")
		if err := unix.FsconfigSetString(ctx, k, v); err != nil {
			return -1, fmt.Errorf("set %s option %s: %w%s", fs, o, err, complaint(ctx))
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, fmt.Errorf("create %s: %w%s", fs, err, complaint(ctx))
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", fs, err)
	}
	return fd, nil
}

// complaint returns what the filesystem logged about its configuration.
func complaint(ctx int) string {
	buf := make([]byte, 512)
	n, err := unix.Read(ctx, buf)
	if err != nil || n <= 2 {
		return ""
	}
	return " (" + strings.TrimSpace(string(buf[2:n])) + ")"
}

// Tmpfs makes a detached tmpfs whose root belongs to owner.
func Tmpfs(attrs, owner int, mode string, options ...string) (int, error) {
	o := append([]string{fmt.Sprintf("uid=%d", owner), fmt.Sprintf("gid=%d", owner), "mode=" + mode}, options...)
	return New("tmpfs", unix.MOUNT_ATTR_NOSUID|attrs, o...)
}
