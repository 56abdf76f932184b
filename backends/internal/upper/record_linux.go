package upper

import (
	"errors"
	"fmt"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// hashLimit: a lower larger than this is not read when its origin is recorded;
// its identity stands for its content until a plan needs the hash.
const hashLimit = 64 << 20

// Window says when the entries that have no origin yet can have been made. Times
// are the change times of a stamp file on the state's filesystem, less a margin
// for steps of the clock that are too small to be noticed: file times come from a
// coarser clock than the system's.
type Window struct {
	TView int64 // when the present view was mounted
	// TExec is when the earliest command started that can have made one. Zero, or
	// earlier than TView, is TView.
	TExec int64
	// Stepped: the clock was set back since, and change times prove nothing.
	Stepped bool
}

// Record writes down the origin of every upper entry that has none yet: what
// the host has at its path, and whether that is certainly what the view started
// from. Call it before a view is rebuilt, with the times of the old one, and
// whenever it is cheap to: the sooner, the fewer uncertain origins.
func Record(dir string, w Window) (err error) {
	r, err := openRecorder(dir, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, l := range r.layers {
		if l.lower < 0 {
			continue
		}
		w := &walker{layer: l, tview: w.TView, visit: func(p *pair) error {
			_, err := r.origin(p)
			return vanished(err) // the host removed it this instant
		}}
		if err := w.walk(); err != nil {
			return fmt.Errorf("record origins below %s: %w", l.source.Point, err)
		}
	}
	return r.finish(false)
}

// recorder looks origins up and makes the missing ones. It holds the lock of
// the origin log for its whole life.
type recorder struct {
	window
	log    *originLog
	layers []*layer
	hash   *hasher
	seen   map[change.Path]bool // visited in this walk
	cover  map[change.Path]bool // seen covering in this walk
}

func openRecorder(dir string, w Window) (*recorder, error) {
	log, err := openOrigins(dir)
	if err != nil {
		return nil, err
	}
	ls, err := openLayers(dir)
	if err != nil {
		return nil, errors.Join(err, log.close())
	}
	r := &recorder{
		window: window{w.TView, max(w.TView, w.TExec), w.Stepped}, log: log, layers: ls, hash: newHasher(readHashes(dir)),
		seen: map[change.Path]bool{}, cover: map[change.Path]bool{},
	}
	return r, nil
}

// finish forgets what is known of entries that the upper no longer has and makes
// what is new durable. Layers that could not be walked keep theirs.
func (r *recorder) finish(prune bool) error {
	walked := func(p change.Path) bool {
		l, _, err := locate(r.layers, p)
		return err != nil || l.lower >= 0
	}
	for p := range maps.Clone(r.log.known) {
		if !r.seen[p] && walked(p) {
			r.log.add(origin{Path: p, Mark: forgetOne})
		}
	}
	for p := range maps.Clone(r.log.cover) {
		if !r.cover[p] && walked(p) {
			r.log.add(origin{Path: p, Mark: uncovers})
		}
	}
	for p := range r.cover {
		if !r.log.cover[p] {
			r.log.add(origin{Path: p, Mark: covers})
		}
	}
	return errors.Join(r.log.flush(), r.hash.cache.write(prune))
}

func (r *recorder) close() error {
	closeLayers(r.layers)
	return r.log.close()
}

// origin returns the origin of a visited pair, recording it first if need be. One
// that lies below a directory which the host has replaced since is not certain
// any more, though its record stays: the directory may come back.
func (r *recorder) origin(p *pair) (origin, error) {
	r.seen[p.path] = true
	if p.covers() { // though nothing is there: what the host adds later, the view has not deleted
		r.cover[p.path] = true
	}
	o, ok := r.log.known[p.path]
	if !ok {
		var err error
		if o, err = r.discover(p); err != nil {
			return o, err
		}
		r.log.add(o)
	}
	p.known = &o
	if now := o; now.Certain && !p.way.same {
		now.Certain, now.Why = false, movedAbove
		return now, nil
	}
	return o, nil
}

// discover finds out what a pair without an origin started from.
func (r *recorder) discover(p *pair) (origin, error) {
	o := origin{Path: p.path, TView: r.view}
	if !p.covered {
		var err error
		if o.Old, err = p.lo.entry(); err != nil {
			return o, err
		}
	}
	// The bytes of a file that the view has a copy of are read now, while they
	// are what the copy was made from: then a copy without a difference stays no
	// change whatever the host does to its file later.
	if p.lo.regular() && p.up.regular() && !p.covered && p.lo.st.Size <= hashLimit {
		s, err := r.hash.regular(p.lo)
		if err != nil && !errors.Is(err, errUnstable) && !errors.Is(err, unix.ENOENT) {
			return o, err
		}
		if o.Old, err = p.lo.entry(); err != nil {
			return o, err
		}
		o.Old.SHA256 = s
	}
	o.Why = r.doubt(p)
	o.Certain = o.Why == ""
	return o, nil
}
