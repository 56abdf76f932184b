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
func (l *layer) scrub() error {
	w := &walker{layer: l, visit: func(p *pair) error {
		if p.up == nil || p.up.isDir() {
			return nil
		}
		h, marked := parseOriginAttr(p.attrs[originAttr])
		if !marked || !h.alive(p.mount) {
			return nil
		}
		if p.lo != nil {
			if now, ok := handleOf(p.lo); ok && h.equal(now) {
				return nil // copied up in place
			}
		}
		err := unix.Lremovexattr(p.up.proc(), originAttr)
		if err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("remove origin mark of %s: %w", change.Escape(p.up.name), err)
		}
		return nil
	}}
	return w.walk()
}
