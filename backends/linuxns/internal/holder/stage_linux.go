package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/upper"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// unlayered are the directories that a view has of its own.
var unlayered = []string{"/proc", "/sys", "/dev", "/run"}

func below(p, root string) bool {
	return p == root || root == "/" || strings.HasPrefix(p, strings.TrimSuffix(root, "/")+"/")
}

// stage puts a candidate into the layer through the merged mount: the kernel
// keeps no promise about an upper that is edited below it. It is done in the
// builder's mount namespace, which nothing inside can change. The caller holds
// h.mu.
func (h *Holder) stage(ctx context.Context, p change.Path, remove bool, from *os.File) error {
	if err := h.stageable(string(p)); err != nil {
		return err
	}
	v, err := h.ensure(ctx, false)
	if err != nil {
		return err
	}
	// What is there now gets its origin first: a file that is replaced has no
	// trace of what it was copied from.
	s := staging{path: string(p), shift: h.mode.Shift, uid: h.spec.UID, gid: h.spec.GID}
	in := func(f func() error) error {
		return builder.In(v.ns, func() error { return mounts.As(h.mode.Shift, f) })
	}
	if !remove {
		if err := in(s.copyUp); err != nil && (from == nil || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	if err := h.recordOrigins(); err != nil {
		return err
	}
	switch {
	case remove:
		err = in(s.remove)
	case from != nil:
		err = in(func() error { return s.put(from) })
	}
	if err != nil {
		return err
	}
	if err := h.recordOrigins(); err != nil {
		return err
	}
	return upper.MarkStaged(h.spec.Dir, p)
}

// stageable checks the path against the environment and the host.
func (h *Holder) stageable(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
		return fmt.Errorf("%q is not the absolute path of a file", p)
	}
	if !below(p, h.spec.Base) {
		return backends.ErrOutsideBase
	}
	for _, d := range append([]string{h.spec.StateRoot}, append(unlayered, h.spec.Hide...)...) {
		if below(p, d) {
			return fmt.Errorf("%s is not part of any layer", d)
		}
	}
	// The parent must be what it says, on the host too: a symlink there would
	// make the change one of another place.
	fd, err := unix.Openat2(unix.AT_FDCWD, path.Dir(p), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("a parent of it is a symlink: name the place it leads to")
	}
	if err == nil {
		unix.Close(fd)
	} else if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("look at its parent: %w", err)
	}
	return nil
}

// recordOrigins writes down what upper entries came from, as far as that is
// known now.
func (h *Holder) recordOrigins() error {
	stepped, err := h.rec.View.WentBack()
	if err != nil {
		return err
	}
	if stepped {
		h.rec.View.Stepped = true
	}
	return upper.Record(h.spec.Dir, upper.Window{TView: h.rec.View.Time, Stepped: stepped})
}

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

// open opens the file for writing, which copies it up with all it has.
func (s staging) open(dir int, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(dir, path.Base(s.path), &unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | flags, Mode: openMode(flags),
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, errors.New("it is a symlink in the view: stage what it leads to, or change it with exec")
	case errors.Is(err, unix.EISDIR):
		return nil, errors.New("it is a directory")
	case errors.Is(err, unix.ENXIO):
		return nil, errors.New("it is neither file nor directory")
	case err != nil:
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
	f, err := s.open(dir, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// put writes the content. An existing file keeps owner and mode; a new one gets
// the mode of what it is copied from.
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
	f, err := s.open(dir, 0)
	if errors.Is(err, os.ErrNotExist) {
		f, err = s.create(dir, uint32(src.Mode().Perm()))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	// Space first: an old candidate is not lost to a full disk.
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, max(src.Size(), 1))
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("reserve space: %w", err)
	}
	n, err := copyAll(f, from)
	if err != nil {
		return err
	}
	if err := f.Truncate(n); err != nil {
		return err
	}
	return f.Sync()
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

// copyAll copies from the beginning, wherever the offset is: it is shared with
// whoever sent the descriptor.
func copyAll(to, from *os.File) (int64, error) {
	buf := make([]byte, 256<<10)
	for at := int64(0); ; {
		n, err := unix.Pread(int(from.Fd()), buf, at)
		if err != nil {
			return at, fmt.Errorf("read candidate: %w", err)
		}
		if n == 0 {
			return at, nil
		}
		if _, err := to.WriteAt(buf[:n], at); err != nil {
			return at, fmt.Errorf("write candidate: %w", err)
		}
		at += int64(n)
	}
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
