package hostfiles

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// removeAll removes name in dir with everything below it, following no symlink
// and entering no mount: what is mounted there, however it came, is not ours.
func removeAll(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return &os.PathError{Op: "unlink", Path: change.Escape(name), Err: err}
	}
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: resolve | unix.RESOLVE_NO_XDEV,
	}
	fd, err := openat2(dir, name, &how)
	if err == unix.EACCES && unix.Fchmodat(dir, name, 0o700, 0) == nil {
		fd, err = openat2(dir, name, &how)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: change.Escape(name), Err: err}
	}
	defer unix.Close(fd)
	list, err := names(fd, "")
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range list {
		errs = append(errs, removeAll(fd, n))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "rmdir", Path: change.Escape(name), Err: err}
	}
	return nil
}

// quietly does something to the entries of a directory that is none of the
// plan's, and puts its modification time back. Should the machine stop between
// the two, that time, at the top of a mount, is all that is lost.
func quietly(dir int, f func() error) error {
	n, err := stat(dir, "")
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return ownTime(dir, n.mtime)
}

// ownTime sets a directory's modification time, unless only its owner may and
// that is somebody else.
func ownTime(dir int, mtime int64) error {
	if err := setTime(dir, "", mtime); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}
