package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

const label = "security.selinux"

// source is where a new object's extended attributes come from.
type source struct {
	dir  int
	name string
	all  bool // an object of the same type stands there; else only the label is taken
}

// path names the source for calls that know no directory descriptors. The last
// element is not followed by the l*xattr family, those before it are ours.
func (s source) path() string {
	p := fmt.Sprintf("/proc/self/fd/%d", s.dir)
	if s.name != "" {
		p += "/" + s.name
	}
	return p
}

// xattrs reads what a replacement has to keep: everything for an object of the
// same type, because a plan holds only changes whose attributes equal the
// host's; the security label of the directory for a new one, which is what the
// kernel gives where no policy rule says otherwise.
func (s source) xattrs() (map[string][]byte, error) {
	if !s.all {
		v, err := getxattr(s.path(), label)
		if err != nil || v == nil {
			return nil, err
		}
		return map[string][]byte{label: v}, nil
	}
	list, err := sized(func(b []byte) (int, error) { return unix.Llistxattr(s.path(), b) })
	if err != nil || len(list) == 0 {
		return nil, err
	}
	m := map[string][]byte{}
	for k := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		if !portable(k) {
			continue
		}
		v, err := getxattr(s.path(), k)
		if err != nil {
			return nil, err
		}
		if v != nil {
			m[k] = v
		}
	}
	return m, nil
}

// portable leaves out signatures over the old content and bookkeeping of overlay.
func portable(name string) bool {
	switch name {
	case "security.ima", "security.evm":
		return false
	}
	return !strings.HasPrefix(name, "trusted.overlay.") && !strings.HasPrefix(name, "user.overlay.")
}

// getxattr returns nil without error where there is no such attribute.
func getxattr(path, name string) ([]byte, error) {
	v, err := sized(func(b []byte) (int, error) { return unix.Lgetxattr(path, name, b) })
	if errors.Is(err, unix.ENODATA) {
		return nil, nil
	}
	return v, err // an attribute without a value is empty, not nil
}

// sized reads an attribute call's answer of unknown length; none where the
// filesystem has no attributes.
func sized(read func([]byte) (int, error)) ([]byte, error) {
	b := make([]byte, 256)
	for {
		n, err := read(b)
		switch {
		case err == unix.ERANGE:
			b = make([]byte, 64<<10) // XATTR_SIZE_MAX and XATTR_LIST_MAX
		case err == unix.ENOTSUP:
			return nil, nil
		case err != nil:
			return nil, os.NewSyscallError("getxattr", err)
		default:
			return b[:n], nil
		}
	}
}

// attribute gives an open file or directory its metadata. The order is the
// kernel's doing: chown clears setuid bits and capabilities, an access ACL owns
// the group bits of the mode, and everything before the time changes it.
func attribute(fd int, e *change.Entry, xattrs map[string][]byte) error {
	if err := unix.Fchown(fd, int(e.UID), int(e.GID)); err != nil {
		return os.NewSyscallError("fchown", err)
	}
	for k, v := range xattrs {
		if err := unix.Fsetxattr(fd, k, v, 0); err != nil && !optional(k, err) {
			return fmt.Errorf("set %s: %w", k, err)
		}
	}
	if err := unix.Fchmod(fd, e.Mode); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	return setTime(fd, "", e.MTime)
}

// attributeLink gives a symlink its owner, label and time; its mode means nothing.
func attributeLink(dir int, name string, e *change.Entry, xattrs map[string][]byte) error {
	if err := unix.Fchownat(dir, name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return os.NewSyscallError("fchownat", err)
	}
	for k, v := range xattrs {
		at := source{dir: dir, name: name}.path()
		if err := unix.Lsetxattr(at, k, v, 0); err != nil && !optional(k, err) {
			return fmt.Errorf("set %s: %w", k, err)
		}
	}
	return setTime(dir, name, e.MTime)
}

// optional reports an attribute that we copy where we can: a label is set by
// policy when we may not, the others need root.
func optional(name string, err error) bool {
	switch err {
	case unix.EPERM, unix.ENOTSUP, unix.EACCES:
		return name == label || os.Geteuid() != 0
	}
	return false
}

// setTime sets the modification time, in nanoseconds; 0 leaves it. The access
// time stays.
func setTime(dir int, name string, mtime int64) error {
	if mtime == 0 {
		return nil
	}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime)}
	if err := unix.UtimesNanoAt(dir, name, ts, flags); err != nil {
		return os.NewSyscallError("utimensat", err)
	}
	return nil
}
