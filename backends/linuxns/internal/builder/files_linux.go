package builder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// fileOf returns a detached bind of one file on a filesystem that is not
// attached anywhere: a clone of a detached mount needs Linux 6.15, so it is
// attached in the scratch space of the thread for a moment.
func (b *build) fileOf(t int, name string, attrs uint64) (int, error) {
	if err := unix.Mkdirat(b.scratch, "f", 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, err
	}
	place, err := mounts.Place(b.scratch, "f", false)
	if err != nil {
		return -1, err
	}
	defer unix.Close(place)
	if err := unix.MoveMount(t, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return -1, fmt.Errorf("attach files: %w", err)
	}
	c, err := mounts.Clone(t, name, false)
	if err != nil {
		return -1, err
	}
	if err := mounts.Set(c, attrs); err != nil {
		unix.Close(c)
		return -1, err
	}
	return c, nil
}

// copyFile gives a single-file mount of the host a private copy, which lives in
// the environment's directory and is bound. Its changes are not changes of a
// host path that can be replaced, so they are never planned.
func (b *build) copyFile(p *piece) (int, error) {
	p.Reason = "a mount of a single file; changes to it are not applied"
	if b.Merged != nil { // the view's own copy, which a canary may not change
		p.attrs |= unix.MOUNT_ATTR_RDONLY
		return CloneIn(b.Merged, b.self, p.Point, false)
	}
	src, err := unix.Open(p.Point, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(src)
	var st unix.Stat_t
	if err := unix.Fstat(src, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, errors.New("a mount of something that is no regular file")
	}
	dir := b.Dir.Path(envdir.Files)
	if b.Throwaway {
		dir = "." // scratch
	}
	path := filepath.Join(dir, "f"+mountplan.Key(p.Point))
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := copyTo(path, p.Point, st); err != nil {
			return -1, fmt.Errorf("copy file: %w", err)
		}
	}
	t, err := mounts.Clone(unix.AT_FDCWD, path, false)
	if err != nil {
		return -1, err
	}
	if b.Mode.UserNS() && !b.Throwaway {
		if err := mounts.Idmap(t, b.User); err != nil {
			unix.Close(t)
			return -1, err
		}
	}
	return t, nil
}

func copyTo(path, from string, st unix.Stat_t) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := path + ".tmp"
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := out.Chown(int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(int(out.Fd()), st.Mode&0o7777); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
