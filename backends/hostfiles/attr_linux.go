package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// attr is one extended attribute that an object is to get.
type attr struct {
	name  string
	value []byte
	must  bool // the plan's; else inherited where the filesystem lets us
}

// attrs lists what a new object gets, in the order in which it is set.
func attrs(planned, inherited map[string][]byte) []attr {
	if len(planned)+len(inherited) == 0 {
		return nil
	}
	list := make([]attr, 0, len(planned)+len(inherited))
	for k, v := range inherited {
		list = append(list, attr{k, v, false})
	}
	for k, v := range planned {
		list = append(list, attr{k, v, true})
	}
	slices.SortFunc(list, func(a, b attr) int {
		if c := turn(a.name) - turn(b.name); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return list
}

// turn puts ACLs first, because they say what the mode is, and the capability
// last, because chown(2) and some writes of attributes clear it.
func turn(name string) int {
	switch name {
	case xattr.ACL:
		return 0
	case xattr.DefaultACL:
		return 1
	case xattr.Capability:
		return 3
	}
	return 2
}

// done judges the error of setting one attribute. What a new object only
// inherits it may lack where policy or the filesystem refuses it, never for want
// of space.
func (a attr) done(err error) error {
	switch err {
	case nil:
		return nil
	case unix.EPERM, unix.EACCES, unix.ENOTSUP, unix.EINVAL:
		if !a.must {
			return nil
		}
	}
	return fmt.Errorf("set attribute %s: %w", change.Escape(a.name), err)
}

// dress gives an open file or directory that we made its metadata. The order is
// the kernel's doing: chown clears setuid bits and capabilities, an access ACL
// owns the group bits of the mode, and everything before the time changes it.
func dress(fd int, e *change.Entry, inherited map[string][]byte) error {
	if err := own(fd, e); err != nil {
		return err
	}
	for _, a := range attrs(e.Xattrs, inherited) {
		if err := a.done(unix.Fsetxattr(fd, a.name, a.value, 0)); err != nil {
			return err
		}
	}
	return setTime(fd, "", e.MTime)
}

// own sets owner and mode of an open file or directory.
func own(fd int, e *change.Entry) error {
	if err := unix.Fchown(fd, int(e.UID), int(e.GID)); err != nil {
		return os.NewSyscallError("fchown", err)
	}
	if err := unix.Fchmod(fd, e.Mode); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	return nil
}

// dressAt is dress for what cannot be opened without meaning: a symlink, whose
// mode says nothing, and a fifo. Both are in a directory of ours.
func dressAt(dir int, name string, e *change.Entry, inherited map[string][]byte) error {
	if err := unix.Fchownat(dir, name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return os.NewSyscallError("fchownat", err)
	}
	if e.Type != change.Symlink {
		if err := unix.Fchmodat(dir, name, e.Mode, 0); err != nil {
			return os.NewSyscallError("fchmodat", err)
		}
	}
	for _, a := range attrs(e.Xattrs, inherited) {
		if err := a.done(unix.Lsetxattr(xattr.Path(dir, name), a.name, a.value, 0)); err != nil {
			return err
		}
	}
	return setTime(dir, name, e.MTime)
}

// inherited returns what a new object has of the one of the same type that it
// replaces and no plan carries: its label, and what one filesystem means by an
// attribute of its own. Signatures over the old content are not among it.
func inherited(dir int, name string) (map[string][]byte, error) {
	all, err := xattr.All(dir, name)
	for k := range all {
		if !heritable(k) {
			delete(all, k)
		}
	}
	return all, err
}

func heritable(name string) bool {
	switch name {
	case "security.ima", "security.evm":
		return false
	}
	return !xattr.Plannable(name) && !strings.HasPrefix(name, "trusted.overlay.")
}

// labels are the attributes by which a security module knows an object. A new
// one gets its directory's, which is what the kernel gives where no rule of a
// policy says otherwise.
func labels(dir int) (map[string][]byte, error) {
	all, err := xattr.All(dir, "")
	for k := range all {
		if k != xattr.SELinux && k != "security.SMACK64" {
			delete(all, k)
		}
	}
	return all, err
}

// setTime sets the modification time, in nanoseconds. The access time stays.
func setTime(dir int, name string, mtime int64) error {
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

// plain takes a default ACL away from a directory of ours: nothing that is made
// in it shall get one that no plan says.
func plain(dir int, name string) error {
	err := unix.Lremovexattr(xattr.Path(dir, name), xattr.DefaultACL)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return os.NewSyscallError("removexattr", err)
}
