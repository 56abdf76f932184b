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

// staging works on one path of a merged mount.
type staging struct {
	path     string
	shift    int
	uid, gid uint32
}

// parent opens the directory of the path, making what is missing of it.
func (s staging) parent(create bool) (int, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(strings.Trim(path.Dir(s.path), "/"), "/") {
		if name == "" {
			continue
		}
		next, err := s.down(root, name, create)
		unix.Close(root)
		if err != nil {
			return -1, err
		}
		root = next
	}
	return root, nil
}

func (s staging) down(dir int, name string, create bool) (int, error) {
	how := &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	}
	fd, err := unix.Openat2(dir, name, how)
	if errors.Is(err, unix.ELOOP) {
		return -1, errors.New("a parent of it is a symlink in the view")
	}
	if !errors.Is(err, unix.ENOENT) || !create {
		return fd, err
	}
	if err := unix.Mkdirat(dir, name, 0o755); err != nil {
		return -1, fmt.Errorf("make parent %s: %w", change.Escape(name), err)
	}
	if fd, err = unix.Openat2(dir, name, how); err != nil {
		return -1, err
	}
	return fd, s.own(fd)
}

// own gives what was made to the environment's owner.
func (s staging) own(fd int) error {
	return unix.Fchownat(fd, "", s.shift+int(s.uid), s.shift+int(s.gid), unix.AT_EMPTY_PATH)
}

// file opens the regular file for writing, which copies it up with all it has.
// Its type is looked at first: whoever waits at the other end of a FIFO would
// take the opening for a writer.
func (s staging) file(dir int) (*os.File, error) {
	name := path.Base(s.path)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return s.open(dir, 0)
	case unix.S_IFLNK:
		return nil, errors.New("it is a symlink in the view: stage what it leads to, or change it with exec")
	case unix.S_IFDIR:
		return nil, errors.New("it is a directory: stage what is in it, or change it with exec")
	case unix.S_IFIFO:
		return nil, errors.New("it is a fifo: only regular files can be staged, change it with exec")
	case unix.S_IFSOCK:
		return nil, errors.New("it is a socket: whoever listens on it makes it")
	default:
		return nil, errors.New("it is a device: no plan can hold one")
	}
}

// open opens it when its type is known; in a live view it may be another now.
func (s staging) open(dir int, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(dir, path.Base(s.path), &unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | flags, Mode: openMode(flags),
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), s.path)
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openMode is the mode of a file to be made; openat2(2) takes none otherwise.
func openMode(flags uint64) uint64 {
	if flags&unix.O_CREAT != 0 {
		return 0o600
	}
	return 0
}

func (s staging) copyUp() error {
	dir, err := s.parent(false)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	f, err := s.file(dir)
	if err != nil {
		return err
	}
	return f.Close()
}

// put writes the content. An existing file keeps owner, mode and attributes; a
// new one gets the mode of what it is copied from.
func (s staging) put(from *os.File) error {
	src, err := from.Stat()
	if err != nil {
		return err
	}
	if !src.Mode().IsRegular() {
		return errors.New("only a regular file can be staged")
	}
	dir, err := s.parent(true)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	f, err := s.file(dir)
	if errors.Is(err, os.ErrNotExist) {
		f, err = s.create(dir, uint32(src.Mode().Perm()))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	// A write takes the file's capability away, as it would the set-user-ID bit of
	// somebody with less power: both are the file's, like its owner.
	capability, err := readCapability(f)
	if err != nil {
		return err
	}
	if err := fill(f, from, src.Size()); err != nil {
		return err
	}
	if len(capability) > 0 {
		if err := unix.Fsetxattr(int(f.Fd()), xattr.Capability, capability, 0); err != nil {
			return fmt.Errorf("keep its capability: %w", err)
		}
	}
	return f.Sync()
}

func readCapability(f *os.File) ([]byte, error) {
	b := make([]byte, 64) // 24 are the longest form
	n, err := unix.Fgetxattr(int(f.Fd()), xattr.Capability, b)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read its capability: %w", err)
	}
	return b[:n], nil
}

func (s staging) create(dir int, mode uint32) (*os.File, error) {
	f, err := s.open(dir, unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return nil, err
	}
	err = s.own(int(f.Fd()))
	if err == nil {
		err = unix.Fchmod(int(f.Fd()), mode)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s staging) remove() error {
	dir, err := s.parent(false)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return removeAll(dir, path.Base(s.path))
}

// removeAll removes one entry with everything below it, following no symlink.
// What something is mounted on stays, with EBUSY.
func removeAll(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := removeAll(fd, n); err != nil {
			return fmt.Errorf("%s: %w", change.Escape(n), err)
		}
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}
