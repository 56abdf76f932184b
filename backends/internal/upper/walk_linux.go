package upper

import (
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// pair is one path that the upper says something about, with what the host has
// there now. Both sides are valid only during the visit.
type pair struct {
	path change.Path
	up   *node // nil when the path is deleted in the view
	lo   *node // nil when the host has nothing there
	// cover is the whiteout, the opaque or the replaced directory that deletes
	// the path without an entry of its own in the upper; otherwise empty.
	cover   change.Path
	under   bool              // its directory is itself deleted or replaced
	opaque  bool              // a directory of the upper that shows nothing of the host's
	way     way               // what is known of the directories above
	known   *origin           // set by the recorder when it is visited
	attrs   map[string][]byte // of up
	mount   int               // a descriptor on the lower's filesystem
	foreign string            // the lower's type, where another clock than ours dates it
	top     bool              // the mount point itself
	covered bool              // the host has another mount over it, or over a directory above
	tooLong bool              // no system call could name the path
}

// deleted reports a whiteout or an implied deletion.
func (p *pair) deleted() bool { return p.up == nil }

// covers reports that the path deletes what the host has below it, or would have
// if something were there.
func (p *pair) covers() bool {
	if p.up.isDir() {
		return p.opaque
	}
	return p.cover == "" && p.lo.isDir()
}

// walker walks one layer's upper and lower side by side, by descriptor.
type walker struct {
	layer *layer
	visit func(*pair) error
	tview int64 // when the view was mounted
}

// walk visits every entry of the upper, and every entry of the lower that the
// upper deletes, children before the directory that is deleted.
func (w *walker) walk() error {
	up, err := lookup(w.layer.upper, ".")
	if err != nil {
		return err
	}
	lo, err := lookup(w.layer.lower, ".")
	if err != nil {
		return err
	}
	attrs, err := up.xattrs()
	if err != nil {
		return err
	}
	p := &pair{path: w.layer.path(""), up: up, lo: lo, way: way{same: true, still: true}, attrs: attrs, mount: w.layer.lower, foreign: w.layer.foreign(), top: true}
	p.opaque = opaque(attrs)
	if err := w.visit(p); err != nil {
		return err
	}
	p.way = p.into(w.tview)
	return w.dir(p, w.layer.upper, w.layer.lower)
}

// dir visits the entries of the upper directory of p.
func (w *walker) dir(p *pair, up, lo int) error {
	list, err := names(up)
	if err != nil {
		return err
	}
	for _, name := range list {
		if err := w.entry(p, up, lo, name); err != nil {
			return err
		}
	}
	if lo < 0 || !p.opaque {
		return nil
	}
	below, err := names(lo)
	if err != nil {
		return err
	}
	for _, name := range below {
		if _, ours := slices.BinarySearch(list, name); ours {
			continue
		}
		if err := w.deletion(p, lo, name, p.path); err != nil {
			return err
		}
	}
	return nil
}

func opaque(attrs map[string][]byte) bool { return string(attrs[overlayPrefix+"opaque"]) == "y" }

// entry visits one upper entry and what is below it. An entry that vanishes
// while it is looked at, in a live view, was not there.
func (w *walker) entry(parent *pair, up, lo int, name string) error {
	u, err := lookup(up, name)
	if err != nil || u == nil {
		return err
	}
	if u.whiteout() {
		return w.deletion(parent, lo, name, "")
	}
	p := &pair{path: join(parent.path, name), up: u, way: parent.way, mount: w.layer.lower, foreign: w.layer.foreign()}
	if len(p.path) >= unix.PathMax {
		p.tooLong = true
		return w.visit(p)
	}
	if lo >= 0 {
		if p.lo, err = lookup(lo, name); err != nil {
			return err
		}
	}
	if p.covered, err = w.layer.covered(p.lo, p.path); err != nil {
		return err
	}
	p.covered = p.covered || parent.covered
	if p.attrs, err = u.xattrs(); errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return err
	}
	// Overlayfs marks the outermost directory only: below one that shows nothing
	// of the host's, no directory does.
	p.opaque = u.isDir() && (parent.opaque || opaque(p.attrs))
	if p.lo.isDir() && !u.isDir() && !p.covered {
		if err := w.expand(p, lo, name, p.path); err != nil {
			return err
		}
	}
	if err := w.visit(p); err != nil || !u.isDir() {
		return err
	}
	return w.descend(p, up, lo, name)
}

// descend walks a directory of the upper together with the lower's, if there is
// one to look into.
func (w *walker) descend(p *pair, up, lo int, name string) error {
	fd, err := openDir(up, name)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	below := -1
	if p.lo.isDir() && !p.covered {
		below, err = openDirWithin(lo, name, 0) // not covered, so at most bound on itself
		switch {
		case gone(err):
			below = -1 // the host removed it this instant
		case err != nil:
			return err
		default:
			defer unix.Close(below)
		}
	}
	p.way = p.into(w.tview)
	return w.dir(p, fd, below)
}

// deletion visits an entry of the lower that the view has deleted. cover names
// the directory that implies it, and is empty for a whiteout of its own.
func (w *walker) deletion(parent *pair, lo int, name string, cover change.Path) error {
	p := &pair{path: join(parent.path, name), cover: cover, way: parent.way, mount: w.layer.lower, foreign: w.layer.foreign()}
	p.under = parent.deleted() || !parent.up.isDir()
	if lo >= 0 {
		var err error
		if p.lo, err = lookup(lo, name); err != nil {
			return err
		}
	}
	var err error
	if p.covered, err = w.layer.covered(p.lo, p.path); err != nil {
		return err
	}
	p.covered = p.covered || parent.covered
	if p.lo.isDir() && !p.covered {
		if cover == "" {
			cover = p.path
		}
		if err := w.expand(p, lo, name, cover); err != nil {
			return err
		}
	}
	return w.visit(p)
}

// expand visits every entry of a lower directory that is deleted with it.
func (w *walker) expand(dir *pair, lo int, name string, cover change.Path) error {
	p := *dir
	p.way = p.into(w.tview)
	fd, err := openDirWithin(lo, name, 0)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	list, err := names(fd)
	if err != nil {
		return err
	}
	for _, child := range list {
		if err := w.deletion(&p, fd, child, cover); err != nil {
			return err
		}
	}
	return nil
}

// gone reports that an entry was removed or changed its type between two looks.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

func join(dir change.Path, name string) change.Path {
	return change.Path(path.Join(string(dir), name))
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
