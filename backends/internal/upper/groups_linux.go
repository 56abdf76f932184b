package upper

import (
	"fmt"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
)

// inode tells files of one machine apart.
type inode struct{ dev, ino uint64 }

func inodeOf(e *change.Entry) inode { return inode{e.ID.Dev, e.ID.Ino} }

// group decides about the names of one file of the upper. A layer is mounted
// with index=off, which gives a copy to each name that is written: so several
// names of one upper file were made in the view, by ln(1), and are wanted to be
// one file. That the host's other names of what was copied up are left out of it
// is the copy's doing, and no difference by itself.
//
// Ephemeral names are not among them: the others are planned without.
func (d *differ) group(names []member) {
	slices.SortFunc(names, func(a, b member) int { return strings.Compare(string(a.path), string(b.path)) })
	if torn(names) {
		for _, m := range names {
			d.block("unstable", m.path, "it is being written under another name; let the writer finish, or stop the view")
		}
		return
	}
	var planned, apart []member
	for _, m := range names {
		if m.inBase {
			planned = append(planned, m)
		} else {
			apart = append(apart, m)
		}
	}
	linked := d.link(planned)
	for _, m := range apart {
		switch {
		case !m.same:
			d.outside(m)
		case linked || slices.ContainsFunc(planned, func(m member) bool { return !m.same }):
			d.block("outside-base", m.path, fmt.Sprintf("it is one file with %s in the view, but not below the base %s", planned[0].path, change.Escape(d.base)))
		}
	}
}

// link lists the changes of the names that a plan can hold, and reports whether
// they are to become one file on the host.
func (d *differ) link(names []member) bool {
	linked := len(names) > 1 &&
		!together(names, func(m member) *change.Entry { return m.now }) &&
		!together(names, func(m member) *change.Entry { return m.origin.Old })
	for i, m := range names {
		switch {
		case linked && m.want.Type != change.Regular:
			d.block(string(m.want.Type), m.path, fmt.Sprintf("it is one %s with %d names, which no plan can make", m.want.Type, len(names)))
		case linked && i > 0:
			m.want.Link = names[0].path
		}
		if linked || !m.same {
			d.judge(m)
		}
	}
	return linked
}

// together reports that the names already were one file with what is wanted, in
// the host now or in what the view started from.
func together(names []member, of func(member) *change.Entry) bool {
	return !slices.ContainsFunc(names, func(m member) bool {
		e, first := of(m), of(names[0])
		return e == nil || e.ID == nil || first == nil || first.ID == nil || inodeOf(e) != inodeOf(first) || !e.Same(m.want)
	})
}

// torn reports names of one file that were read with different content: a writer
// came between.
func torn(names []member) bool {
	return slices.ContainsFunc(names, func(m member) bool { return !m.want.Same(names[0].want) })
}
