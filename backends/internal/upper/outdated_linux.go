package upper

import (
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// Outdated returns those of the host's paths that changed, or may have changed,
// since a view was mounted: the view may have looked them up before. It follows
// no symlink; what lies behind one that stands in a path's way has changed.
func Outdated(w Window, paths []change.Path) ([]change.Path, error) {
	if w.Stepped {
		return paths, nil
	}
	clocks := map[uint64]bool{} // by mount: another clock dates it
	var out []change.Path
	for _, p := range paths {
		n, direct, err := nearest(p)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", p, err)
		}
		other, known := clocks[n.st.Mnt_id]
		if !known {
			m, err := mountByID(n.st.Mnt_id)
			if err != nil {
				return nil, err
			}
			other = m == nil || !slices.Contains(localFilesystems, m.FSType)
			clocks[n.st.Mnt_id] = other
		}
		if other || n.changed() >= w.TView || !direct && n.format() != unix.S_IFDIR {
			out = append(out, p)
		}
	}
	return out, nil
}

// nearest looks at a path, or where nothing is there, at the innermost directory
// above: removing a name, or moving it away, changes that.
func nearest(p change.Path) (n *node, direct bool, err error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	for at := string(p); ; at = path.Dir(at) {
		fd, err := openat2(unix.AT_FDCWD, path.Dir(at), how)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		n, err = lookup(fd, path.Base(at))
		unix.Close(fd)
		if gone(err) || n == nil && err == nil {
			if at == "/" {
				return nil, false, unix.ENOENT
			}
			continue
		}
		return n, at == string(p), err
	}
}
