package holder

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// become makes the path all that an entry of a plan says.
func (s staging) become(like *change.Entry, from *os.File) error {
	dir, err := s.parent(true)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if like.Link != "" {
		return s.link(dir, like.Link) // which has its metadata already
	}
	if err := s.shape(dir, like, from); err != nil {
		return err
	}
	if like.Type == change.Symlink {
		return s.dressLink(dir, like)
	}
	return s.dress(dir, like)
}

// shape gives the path its type and content.
func (s staging) shape(dir int, like *change.Entry, from *os.File) error {
	name := path.Base(s.path)
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	is := st.Mode & unix.S_IFMT // 0 when there is nothing
	switch {
	case like.Type == change.Directory && is == unix.S_IFDIR:
		return nil
	case like.Type == change.Regular && from == nil:
		return errors.New("a file needs content")
	case like.Type == change.Regular && is == unix.S_IFREG && st.Nlink == 1:
		return s.refill(dir, like, from)
	case is != 0:
		if err := removeAll(dir, name); err != nil {
			return err
		}
	}
	switch like.Type {
	case change.Regular:
		f, err := s.create(dir, 0o600)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		return s.refill(dir, like, from)
	case change.Directory:
		return unix.Mkdirat(dir, name, 0o700)
	case change.Symlink:
		return unix.Symlinkat(string(like.Target), dir, name)
	case change.Fifo:
		return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0)
	}
	return fmt.Errorf("a %s cannot be staged", like.Type)
}

// refill writes the content of a file that nothing else is a name of.
func (s staging) refill(dir int, like *change.Entry, from *os.File) error {
	f, err := s.open(dir, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := fill(f, from, like.Size); err != nil {
		return err
	}
	return f.Sync()
}

// link makes the path another name of a file that was staged before.
func (s staging) link(dir int, first change.Path) error {
	of := staging{path: string(first)}
	at, err := of.parent(false)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := removeAll(dir, path.Base(s.path)); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := unix.Linkat(at, path.Base(of.path), dir, path.Base(s.path), 0); err != nil {
		return fmt.Errorf("make it a name of %s: %w", first, err)
	}
	return nil
}

// dress gives the object owner, attributes, mode and time, in the order in which
// none takes another away: an owner takes the capability, an access control list
// is part of the mode. Opening a FIFO without waiting is seen by nobody, as it was
// made just now.
func (s staging) dress(dir int, like *change.Entry) error {
	fd, err := unix.Openat2(dir, path.Base(s.path), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fchown(fd, s.shift+int(like.UID), s.shift+int(like.GID)); err != nil {
		return fmt.Errorf("set owner: %w", err)
	}
	list := make([]byte, 64<<10) // XATTR_LIST_MAX
	n, err := unix.Flistxattr(fd, list)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("list attributes: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:max(n, 0)]), "\x00"), "\x00") {
		if _, keep := like.Xattrs[name]; keep || !xattr.Plannable(name) {
			continue
		}
		if err := unix.Fremovexattr(fd, name); err != nil {
			return fmt.Errorf("remove attribute %s: %w", change.Escape(name), err)
		}
	}
	for name, value := range like.Xattrs {
		if err := unix.Fsetxattr(fd, name, s.shifted(name, value), 0); err != nil {
			return fmt.Errorf("set attribute %s: %w", change.Escape(name), err)
		}
	}
	if err := unix.Fchmod(fd, like.Mode); err != nil {
		return fmt.Errorf("set mode: %w", err)
	}
	return s.date(dir, like)
}

// dressLink does it for a symlink, which has no mode of its own and cannot be
// opened. The working directory is the thread's own: [builder.In] made it so.
func (s staging) dressLink(dir int, like *change.Entry) error {
	name := path.Base(s.path)
	err := unix.Fchownat(dir, name, s.shift+int(like.UID), s.shift+int(like.GID), unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("set owner: %w", err)
	}
	if err := unix.Fchdir(dir); err != nil {
		return err
	}
	for attr, value := range like.Xattrs {
		if err := unix.Lsetxattr(name, attr, value, 0); err != nil {
			return fmt.Errorf("set attribute %s: %w", change.Escape(attr), err)
		}
	}
	return s.date(dir, like)
}

func (s staging) date(dir int, like *change.Entry) error {
	t := unix.NsecToTimespec(like.MTime)
	err := unix.UtimesNanoAt(dir, path.Base(s.path), []unix.Timespec{{Nsec: unix.UTIME_OMIT}, t}, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("set time: %w", err)
	}
	return nil
}
