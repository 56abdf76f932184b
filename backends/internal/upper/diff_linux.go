package upper

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// DiffOptions says how to read the layers of one environment.
type DiffOptions struct {
	// Env is the environment's name, for the commands that blockers name.
	Env string
	// Base: only paths at or below it are changes. Empty is "/".
	Base string
	// TView is when the present view was mounted, as for [Record]; Stepped says
	// that the clock was set back since.
	TView   int64
	Stepped bool
	// Stop, when not nil, ends the comparison with the error that it returns.
	Stop func() error
}

// Diff returns what the layers of an environment change on the host. It records
// the origins that are missing, so its answer does not depend on who looks next.
func Diff(dir string, opt DiffOptions) (_ backends.Difference, err error) {
	staged, err := readStaged(dir)
	if err != nil {
		return backends.Difference{}, err
	}
	r, err := openRecorder(dir, opt.TView, opt.Stepped)
	if err != nil {
		return backends.Difference{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	r.hash.stop = opt.Stop
	base := cmp.Or(opt.Base, "/")
	d := &differ{recorder: r, env: cmp.Or(opt.Env, "ENV"), policy: policy{base, staged}, links: map[hashKey][]change.Path{}}
	for _, l := range r.layers {
		if l.lower < 0 {
			d.block("mount-changed", change.Path(l.source.Point), "the host no longer has the mount that the layer was made over")
			continue
		}
		w := &walker{layer: l, tview: opt.TView, visit: d.visit}
		if err := w.walk(); err != nil {
			return backends.Difference{}, fmt.Errorf("compare %s: %w", l.source.Point, err)
		}
	}
	if err := r.finish(true); err != nil {
		return backends.Difference{}, err
	}
	return d.result(), nil
}

// differ turns visited pairs into changes and blockers.
type differ struct {
	*recorder
	policy
	env   string
	out   backends.Difference
	links map[hashKey][]change.Path // names of files with several, by inode
	apart []change.Path             // outside the base: whole new or deleted directories
}

func (d *differ) visit(p *pair) error {
	o, err := d.origin(p)
	if err != nil {
		return err
	}
	switch {
	case p.tooLong:
		d.block("name-too-long", p.path, "its path is longer than the kernel takes")
		return nil
	case d.ephemeral(p.path) && !(p.up.isDir() && p.lo == nil && d.holds(p.path)):
		return d.shown(p)
	case p.covered:
		if p.deleted() || !p.up.isDir() || p.cover != "" {
			d.block("mount", p.path, o.Why)
		}
		return nil
	}
	return d.compare(p, o)
}

// shown lists an ephemeral difference by its metadata; its bytes are not read.
func (d *differ) shown(p *pair) error {
	now, err := p.lo.entry()
	if err != nil {
		return err
	}
	want, err := p.up.entry()
	if err != nil {
		return vanished(err)
	}
	same := now.Same(want)
	if same && want != nil && want.Type == change.Regular {
		same = now.Size == want.Size && now.MTime == want.MTime
	}
	// What goes with a deleted directory goes without saying.
	if !same && !p.under {
		d.out.Ephemeral = append(d.out.Ephemeral, derive(p.path, now, want))
	}
	return nil
}

// compare decides one path that is neither ephemeral nor covered.
func (d *differ) compare(p *pair, o origin) error {
	now, err := p.lo.entry()
	if err != nil {
		return vanished(err)
	}
	want, err := p.up.entry()
	if err != nil {
		return vanished(err)
	}
	inBase := d.inBase(p.path)
	if !inBase && (p.under || d.apartFrom(p.path)) {
		return nil // named by a directory above
	}
	if err := d.attributes(p); err != nil {
		return vanished(err)
	}
	if !typed(now) || !typed(want) {
		switch {
		case now.Same(want) && p.up.st.Rdev_major == p.lo.st.Rdev_major && p.up.st.Rdev_minor == p.lo.st.Rdev_minor:
		case inBase:
			d.specials(p, now, want)
		default:
			d.specials(p, now, want)
			d.outside(p, now, want)
		}
		return nil
	}
	if p.up.regular() {
		err := d.read(p.up, want)
		if errors.Is(err, errUnstable) {
			d.block("unstable", p.path, "it is being written; let the writer finish, or stop the view")
			return nil
		}
		if err != nil {
			return vanished(err)
		}
	}
	if same, err := d.equal(p, o, now, want); err != nil || same {
		return vanished(err)
	}
	if !inBase {
		d.outside(p, now, want)
		return nil
	}
	d.judge(p, o, now, want)
	return nil
}

// read hashes a regular file and brings its entry up to date with what was read.
func (d *differ) read(n *node, e *change.Entry) error {
	s, err := d.hash.regular(n)
	if err != nil {
		return err
	}
	fresh, err := n.entry()
	if err != nil {
		return err
	}
	*e = *fresh
	e.SHA256 = s
	return nil
}

// equal reports that the path is no change: the view has what the host has, or
// what it started from. It fills in what hashes it needs.
func (d *differ) equal(p *pair, o origin, now, want *change.Entry) (bool, error) {
	if p.lo.regular() {
		if same(now, o.Old) && o.Old.SHA256 != "" {
			now.SHA256 = o.Old.SHA256
		} else if err := d.read(p.lo, now); err != nil {
			return false, err
		}
		if o.Old != nil && o.Old.SHA256 == "" && same(now, o.Old) {
			// What was read stays known: a trial that is taken back leaves the same
			// bytes under another change time.
			o.Old.SHA256 = now.SHA256
			d.log.add(o)
		}
	}
	if now.Same(want) {
		return true, nil
	}
	// A copy that equals its origin means that the view changed nothing, whatever
	// the host did since; but a directory is there for what is below it.
	unchanged := want != nil && want.Same(o.Old)
	return unchanged && (want.Type != change.Directory || p.lo.isDir()), nil
}

// same reports the same object, unchanged: its content need not be read again.
func same(now, old *change.Entry) bool {
	return old != nil && now != nil && old.ID != nil && now.ID != nil && *old.ID == *now.ID && old.Size == now.Size
}

// judge holds the host against the origin and lists the change.
func (d *differ) judge(p *pair, o origin, now, want *change.Entry) {
	old := o.Old
	switch {
	case !o.Certain:
		d.block("origin-uncertain", p.path, o.Why)
	case !now.Same(old):
		d.block("conflict", p.path, fmt.Sprintf("the host has %s now, the change was made from %s", brief(now), brief(old)))
	default:
		old = now // equal in all that counts, and dated now
	}
	if p.up.regular() && p.up.st.Nlink > 1 {
		d.links[hashKey{dev: want.ID.Dev, ino: want.ID.Ino}] = append(d.links[hashKey{dev: want.ID.Dev, ino: want.ID.Ino}], p.path)
	}
	want = wanted(want)
	d.out.Changes = append(d.out.Changes, derive(p.path, old, want))
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
func (d *differ) outside(p *pair, now, want *change.Entry) {
	if p.up.isDir() != p.lo.isDir() {
		d.apart = append(d.apart, p.path)
	}
	op := derive(p.path, now, want).Op
	d.block("outside-base", p.path, fmt.Sprintf("%s in the view, but not below the base %s", op, change.Escape(d.base)))
}

func (d *differ) apartFrom(p change.Path) bool {
	return slices.ContainsFunc(d.apart, func(a change.Path) bool { return within(string(p), string(a)) })
}

func (d *differ) result() backends.Difference {
	for _, names := range d.links {
		for _, p := range names {
			d.block("hardlink", p, fmt.Sprintf("it is one file with %d names", max(len(names), 2)))
		}
	}
	change.Sort(d.out.Changes)
	change.Sort(d.out.Ephemeral)
	slices.SortFunc(d.out.Blockers, func(a, b change.Blocker) int {
		return cmp.Or(strings.Compare(a.Subject, b.Subject), strings.Compare(a.What, b.What), strings.Compare(a.Reason, b.Reason))
	})
	return d.out
}

// vanished swallows the error of an entry that was removed while it was looked
// at: it was not there.
func vanished(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// attributes blocks every extended attribute that differs from the host's and
// every mark of the kernel that stands for content elsewhere.
func (d *differ) attributes(p *pair) error {
	if p.up == nil {
		return nil
	}
	lower, err := p.lo.xattrs()
	if err != nil {
		return err
	}
	for _, name := range attributeNames(p.attrs, lower) {
		was, had := lower[name]
		is, has := p.attrs[name]
		if had == has && bytes.Equal(was, is) {
			continue
		}
		if what, reason := attributeWord(name, string(is), has, p.lo == nil); what != "" {
			d.block(what, p.path, reason)
		}
	}
	return nil
}
