package upper

import (
	"fmt"
	"slices"

	"github.com/netsandbox/netsandbox/backends/change"
)

// member is one name that differs, or one of a file with several names.
type member struct {
	path      change.Path
	now, want *change.Entry
	origin    origin
	same      bool // by itself it is no change
	inBase    bool
}

// judge holds the host against the origin and lists the change.
func (d *differ) judge(m member) {
	old := m.origin.Old
	switch {
	case m.now.Same(m.want): // nothing of the host's is lost, whatever it started from
		old = m.now
	case !m.origin.Certain:
		d.block("origin-uncertain", m.path, m.origin.Why)
	case !m.now.Same(old):
		d.block("conflict", m.path, conflict(m.now, old))
	default:
		old = m.now // equal in all that counts, and dated now
	}
	d.out.Changes = append(d.out.Changes, derive(m.path, old, wanted(m.want)))
}

// wanted drops what belongs to the origin only.
func wanted(e *change.Entry) *change.Entry {
	if e != nil {
		e.ID, e.Links = nil, 0
	}
	return e
}

// derive names the operation that leads from one entry to another.
func derive(path change.Path, old, want *change.Entry) change.Change {
	c := change.Change{Kind: change.KindFile, Path: path, Old: old, New: want}
	switch {
	case old == nil:
		c.Op = change.Added
	case want == nil:
		c.Op = change.Deleted
	case old.Type != want.Type:
		c.Op = change.Replaced
	default:
		c.Op = change.Modified
	}
	return c
}

// outside blocks a difference that the base keeps out of every plan, one line
// for a whole directory.
func (d *differ) outside(m member) {
	if isDirectory(m.want) != isDirectory(m.now) {
		d.apart = append(d.apart, m.path)
	}
	op := derive(m.path, m.now, m.want).Op
	d.block("outside-base", m.path, fmt.Sprintf("%s in the view, but not below the base %s", op, change.Escape(d.base)))
}

// root blocks a difference that would take the base itself away, or make it. What
// a plan displaces is kept in it, and it is where trials lock its filesystem.
func (d *differ) root(m member) {
	op := derive(m.path, m.now, m.want).Op
	d.out.Blockers = append(d.out.Blockers, change.Blocker{
		What: "outside-base", Subject: m.path.String(), Reason: fmt.Sprintf("%s in the view, but it is the base itself", op),
		Fix: fmt.Sprintf("netsandbox reset %s --all --yes", d.env),
	})
}

func isDirectory(e *change.Entry) bool { return e != nil && e.Type == change.Directory }

func (d *differ) apartFrom(p change.Path) bool {
	return slices.ContainsFunc(d.apart, func(a change.Path) bool { return within(string(p), string(a)) })
}
