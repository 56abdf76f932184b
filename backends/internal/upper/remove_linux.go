package upper

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// Remove drops what the layers say at and below the paths, so that the view
// shows the host there again. The view must be unmounted.
func Remove(dir string, paths []change.Path) error {
	err := edit(dir, func(ls []*layer) error {
		for _, p := range outermost(paths) {
			if err := removePath(ls, p); err != nil {
				return fmt.Errorf("reset %s: %w", p, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(Forget(dir, paths), unmarkStaged(dir, paths))
}

// RemoveAll drops everything that the layers say. The view must be unmounted.
func RemoveAll(dir string) error {
	err := edit(dir, func(ls []*layer) error {
		for _, l := range ls {
			if err := l.clear(); err != nil {
				return fmt.Errorf("reset %s: %w", l.source.Point, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	root := []change.Path{"/"}
	return errors.Join(Forget(dir, root), unmarkStaged(dir, root))
}

// edit runs f over the open layers and makes what it did durable. Only then may
// a caller forget origins: an entry that came back after a power cut without its
// record would be given a wrong one.
func edit(dir string, f func([]*layer) error) error {
	ls, err := openLayers(dir)
	if err != nil {
		return err
	}
	defer closeLayers(ls)
	if err := f(ls); err != nil {
		return err
	}
	for _, l := range ls {
		if l.lower >= 0 {
			if err := l.scrub(); err != nil {
				return err
			}
		}
		if err := unix.Syncfs(l.upper); err != nil {
			return fmt.Errorf("sync layer %s: %w", l.source.Point, err)
		}
	}
	return nil
}

// outermost sorts the paths and leaves out those below another.
func outermost(paths []change.Path) []change.Path {
	all := slices.Sorted(slices.Values(paths))
	var kept []change.Path
	for _, p := range all {
		if !slices.ContainsFunc(kept, func(k change.Path) bool { return within(string(p), string(k)) }) {
			kept = append(kept, p)
		}
	}
	return kept
}

// removePath takes the path out of every layer that says something about it:
// those of mounts below it, and also the ones that the host has mounted over
// since, where it would come back when that mount goes.
func removePath(ls []*layer, p change.Path) error {
	inner, _, err := locate(ls, p)
	if err != nil {
		return err
	}
	for _, l := range ls {
		rel, ok := l.rel(p)
		switch {
		case within(l.source.Point, string(p)):
			err = l.clear()
		case ok:
			err = l.remove(rel)
		}
		if err != nil && (l == inner || !errors.Is(err, errReplaced)) {
			return err
		}
	}
	return nil
}

// clear empties the upper and gives its top the owner and mode of the lower's.
func (l *layer) clear() error {
	list, err := names(l.upper)
	if err != nil {
		return err
	}
	for _, name := range list {
		if err := removeTree(l.upper, name); err != nil {
			return err
		}
	}
	if l.lower < 0 {
		return nil
	}
	top, err := lookup(l.lower, ".")
	if err != nil {
		return err
	}
	return like(l.upper, top)
}

// remove drops one name of the layer and what is below it.
func (l *layer) remove(rel string) error {
	t := &trail{}
	defer t.close()
	name, err := t.follow(l, rel, true)
	if err != nil || name == "" {
		return err
	}
	at := t.last()
	if err := at.clearOpaque(name); err != nil {
		return err
	}
	if err := removeTree(at.up, name); err != nil {
		return err
	}
	return t.prune()
}

// removeTree removes an entry and everything below it, following nothing and
// staying on the filesystem. What is not there is removed.
func removeTree(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return fmt.Errorf("remove %s: %w", change.Escape(name), err)
	}
	fd, err := openDir(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	list, err := names(fd)
	if err != nil {
		return err
	}
	for _, child := range list {
		if err := removeTree(fd, child); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("remove directory %s: %w", change.Escape(name), err)
	}
	return nil
}

// like gives an upper directory the owner, mode and attributes of a lower one.
func like(fd int, n *node) error {
	if err := unix.Fchown(fd, int(n.st.Uid), int(n.st.Gid)); err != nil {
		return fmt.Errorf("set owner: %w", err)
	}
	if err := unix.Fchmod(fd, uint32(n.st.Mode&0o7777)); err != nil {
		return fmt.Errorf("set mode: %w", err)
	}
	want, err := n.xattrs()
	if err != nil {
		return err
	}
	self := &node{dir: fd, name: "."}
	have, err := self.xattrs()
	if err != nil {
		return err
	}
	for _, name := range attributeNames(have, want) {
		v, keep := want[name]
		if keep && !xattr.Bookkeeping(name) {
			err = unix.Fsetxattr(fd, name, v, 0)
		} else if _, had := have[name]; had && name != overlayPrefix+"uuid" {
			err = unix.Fremovexattr(fd, name)
		}
		// What the host's filesystem knows, the layer's may not.
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("set attribute %s: %w", name, err)
		}
	}
	return nil
}
