package upper

import (
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
	// TView is when the present view was mounted; TExec and Stepped are as in
	// [Window].
	TView   int64
	TExec   int64
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
	r, err := openRecorder(dir, Window{opt.TView, opt.TExec, opt.Stepped})
	if err != nil {
		return backends.Difference{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	r.hash.stop = opt.Stop
	base := cmp.Or(opt.Base, "/")
	d := &differ{recorder: r, env: cmp.Or(opt.Env, "ENV"), policy: policy{base, staged}, groups: map[inode][]member{}}
	for _, l := range r.layers {
		if l.lower < 0 {
			d.block("mount-changed", change.Path(l.source.Point), l.why)
			continue
		}
		d.unheld = l.unheld()
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
	env    string
	out    backends.Difference
	groups map[inode][]member // names of files with several, by inode of the upper
	apart  []change.Path      // outside the base: whole new or deleted directories
	unheld []string           // of the layer that is walked
}

func (d *differ) visit(p *pair) error {
	o, err := d.origin(p)
	if err != nil {
		return vanished(err)
	}
	switch {
	case p.tooLong, len(p.path) >= unix.PathMax:
		d.block("name-too-long", p.path, "its path is longer than the kernel takes")
		return nil
	case d.ephemeral(p.path) && !(p.up.isDir() && p.lo == nil && d.holds(p.path)):
		return d.shown(p)
	case p.covered:
		if p.deleted() || !p.up.isDir() || p.cover != "" || p.made() {
			d.block("mount", p.path, mountedOver)
		}
		return nil
	}
	return d.compare(p, o)
}

// shown lists an ephemeral difference by its metadata; its bytes are not read.
func (d *differ) shown(p *pair) error {
	now, err := p.lo.entry()
	if err != nil {
		return vanished(err)
	}
	want, err := p.up.entry()
	if err != nil {
		return vanished(err)
	}
	d.inherit(want, now)
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
	if err := d.marks(p); err != nil {
		return vanished(err)
	}
	if !typed(now) || !typed(want) {
		d.untyped(p, now, want)
		return nil
	}
	if p.up.regular() {
		if err := d.read(p.up, want); err != nil {
			return d.unread(p, err)
		}
	}
	d.inherit(want, now)
	same, err := d.equal(p, o, now, want)
	if err != nil {
		return d.unread(p, err)
	}
	m := member{path: p.path, now: now, want: want, origin: o, same: same, inBase: inBase}
	switch {
	case (p.up.regular() || p.up.fifo()) && p.up.st.Nlink > 1:
		d.groups[p.up.inode()] = append(d.groups[p.up.inode()], m)
	case same:
	case !inBase:
		d.outside(m)
	case string(p.path) == d.base && isDirectory(want) != isDirectory(now):
		d.root(m)
	default:
		d.judge(m)
	}
	return nil
}

// unread names a file whose content could not be told, and swallows the error of
// one that is gone.
func (d *differ) unread(p *pair, err error) error {
	switch {
	case errors.Is(err, errUnstable):
		d.block("unstable", p.path, "it is being written; let the writer finish, or stop the view")
		return nil
	case errors.Is(err, errHoles):
		d.block("huge", p.path, fmt.Sprintf("it has more than %d GiB of holes, which would take too long to read", holeLimit>>30))
		return nil
	}
	return vanished(err)
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
	switch {
	case !unchanged || want.Type == change.Directory && !p.lo.isDir():
		return false, nil
	case want.Type != change.Directory && p.up.st.Nlink == 1 && !d.named(p.path):
		d.out.Outdated = append(d.out.Outdated, p.path)
	}
	return true, nil
}

// same reports the same object, unchanged: its content need not be read again.
func same(now, old *change.Entry) bool {
	return old != nil && now != nil && old.ID != nil && now.ID != nil && *old.ID == *now.ID && old.Size == now.Size
}

func (d *differ) result() backends.Difference {
	for _, names := range d.groups {
		d.group(names)
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
