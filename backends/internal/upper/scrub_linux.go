package upper

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// scrub takes the origin mark from every file that was renamed in the view while
// what it was copied up from still has a name on the host.
//
// The kernel finds an overlay inode by the lower inode that the mark names. As
// long as the lower's own name is whited out only the renamed file is found; once
// an edit has brought that name back, both names lead to one overlay inode, and
// reading or writing the host's shows or changes the renamed one (seen on Linux
// 6.18). Without the mark the file is simply the upper's own.
//
// The names of one file share the mark. It stays as long as one of them is where
// the file was copied up: the lower's own name is covered by it, and it tells what
// that name started from.
func (l *layer) scrub() error {
	home := map[inode]bool{}
	shared := false
	err := l.marked(func(n *node, inPlace bool) error {
		switch {
		case inPlace:
			home[n.inode()] = true
		case n.st.Nlink > 1:
			shared = true
		default:
			return unmark(n)
		}
		return nil
	})
	if err != nil || !shared {
		return err
	}
	return l.marked(func(n *node, inPlace bool) error {
		if inPlace || home[n.inode()] {
			return nil
		}
		return unmark(n)
	})
}

// marked visits every file of the upper whose mark names something that is still
// on the host, and tells whether that is what the host has under the same name.
func (l *layer) marked(visit func(n *node, inPlace bool) error) error {
	w := &walker{layer: l, visit: func(p *pair) error {
		if p.up == nil || p.up.isDir() {
			return nil
		}
		h, marked := parseOriginAttr(p.attrs[originAttr])
		if !marked || !h.alive(p.mount) {
			return nil
		}
		if p.lo == nil {
			return visit(p.up, false)
		}
		now, ok := handleOf(p.lo)
		return visit(p.up, ok && h.equal(now))
	}}
	return w.walk()
}

func unmark(n *node) error {
	err := unix.Lremovexattr(n.proc(), originAttr)
	if err != nil && !errors.Is(err, unix.ENODATA) {
		return fmt.Errorf("remove origin mark of %s: %w", change.Escape(n.name), err)
	}
	return nil
}
