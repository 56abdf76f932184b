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

// Record writes down the origin of every upper entry that has none yet: what
// the host has at its path, and whether that is certainly what the view started
// from. Call it before a view is rebuilt, with the time the old one was mounted,
// and whenever it is cheap to: the sooner, the fewer uncertain origins.
//
// tview is the mount time of the present view, taken from the change time of a
// stamp file on the state's filesystem, less 10 ms (file times come from a
// coarser clock than the system's).
func Record(dir string, tview int64) error { return record(dir, tview, false) }

// RecordUncertain is [Record] after the clock was seen to step back: change
// times prove nothing then, so no origin is certain.
func RecordUncertain(dir string) error { return record(dir, 0, true) }

func record(dir string, tview int64, stepped bool) (err error) {
	r, err := openRecorder(dir, tview, stepped)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, l := range r.layers {
		if l.lower < 0 {
			continue
		}
		w := &walker{layer: l, tview: tview, visit: func(p *pair) error {
			_, err := r.origin(p)
			return err
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
	log     *originLog
	layers  []*layer
	hash    *hasher
	tview   int64
	stepped bool
	seen    map[change.Path]bool // visited in this walk
	cover   map[change.Path]bool // seen covering in this walk
}

func openRecorder(dir string, tview int64, stepped bool) (*recorder, error) {
	log, err := openOrigins(dir)
	if err != nil {
		return nil, err
	}
	ls, err := openLayers(dir)
	if err != nil {
		return nil, errors.Join(err, log.close())
	}
	r := &recorder{
		log: log, layers: ls, hash: newHasher(readHashes(dir)), tview: tview, stepped: stepped,
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

// origin returns the origin of a visited pair, recording it first if need be.
func (r *recorder) origin(p *pair) (origin, error) {
	r.seen[p.path] = true
	if p.cover != "" {
		r.cover[p.cover] = true
	}
	if o, ok := r.log.known[p.path]; ok {
		return o, nil
	}
	o := origin{Path: p.path, TView: r.tview}
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
	r.log.add(o)
	return o, nil
}

// doubt says why the host's present object may not be the one that the view
// started from; empty when it certainly is.
func (r *recorder) doubt(p *pair) string {
	switch {
	case p.covered:
		return "the host has mounted something over it"
	case p.lo == nil:
		return p.absentDoubt()
	case r.stepped:
		return "the clock was set back since the view was mounted"
	case p.lo.ctime() >= r.tview:
		return "the host changed it after the view was mounted"
	case !p.trusted:
		return "a directory above it was replaced on the host"
	case p.cover != "" && r.log.cover[p.cover]:
		return "the host added it after its directory was deleted in the view"
	case p.up != nil && !p.top && p.up.born() < r.tview:
		return "the view that changed it was rebuilt before its origin was recorded"
	}
	return ""
}

// absentDoubt is about a path that the host does not have. Had the host made
// one since, it would be here, so absence needs no clock. But a copy whose
// original is no longer anywhere was made of a file that the host has deleted.
// One whose original still has a name was renamed inside the view.
func (p *pair) absentDoubt() string {
	if p.up == nil {
		return ""
	}
	h, ok := parseOriginAttr(p.attrs[originAttr])
	if !ok || h.alive(p.mount) {
		return ""
	}
	return "the host deleted it after the view had changed it"
}
