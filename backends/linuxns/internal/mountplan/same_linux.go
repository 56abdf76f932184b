package mountplan

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// keeper says which mount points have layers that hold something.
type keeper func(point string) bool

func (k keeper) holds(m Mount) bool { return k != nil && k(m.Point) }

// bySource orders mounts so that each comes after those it can be an alias of.
// By source and not by path: a bind of a directory may sort before the mount
// that it was bound from, and would get a layer of its own.
func (k keeper) bySource(a, b Mount) int {
	if c := cmp.Or(strings.Compare(a.Dev, b.Dev), len(a.Root)-len(b.Root)); c != 0 {
		return c
	}
	return cmp.Or(
		boolean(k.holds(b))-boolean(k.holds(a)),
		boolean(a.ReadOnly)-boolean(b.ReadOnly), // what is written through one is seen in the other
		len(a.Point)-len(b.Point),
		strings.Compare(a.Point, b.Point),
	)
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// source returns the mount that m is a second name of, or -1: both must stay
// one file in the view, so m is shown from that one's layer.
//
// A subvolume of btrfs that is mounted by itself has its own layer also where
// the whole filesystem is mounted beside it: its changes are known by the path
// at which it is used. And a layer that nothing can be written to is no source
// for a mount that can. For both, see [implied].
func (k keeper) source(m Mount, done []Entry) int {
	if m.Point == "/" || !slices.Contains(local, m.FS) || m.Deleted() || k.holds(m) {
		return -1
	}
	at := -1
	for i, o := range done {
		same := o.Treatment == Layer && o.Dev == m.Dev && under(m.Root, o.Root) && o.Subvolume == m.Subvolume
		if !same || !m.ReadOnly && o.ReadOnly && !k.holds(o.Mount) {
			continue
		}
		if at < 0 || len(o.Root) > len(done[at].Root) { // the innermost
			at = i
		}
	}
	return at
}

// implied returns the places at which a wider mount shows what another layer
// has: there is no mount on the host, where it is one filesystem, but in the
// view each layer is a filesystem of its own, and only a second mount keeps both
// names one file.
func implied(es []Entry) []Entry {
	var out []Entry
	for _, wide := range es {
		if wide.Treatment == Excluded || !slices.Contains(local, wide.FS) {
			continue
		}
		for j, e := range es {
			inside := e.Dev == wide.Dev && e.Root != wide.Root && under(e.Root, wide.Root)
			if e.Treatment != Layer || !inside || e.Deleted() {
				continue
			}
			at := join(wide.Point, below(e.Root, wide.Root))
			if home(es, at).ID != wide.ID {
				continue // something is mounted there, or above it
			}
			m := wide.Mount
			m.Point, m.Root = at, e.Root
			out = append(out, Entry{
				Mount: m, Treatment: Alias, Implied: true, Of: j, Rel: ".",
				Reason: "same files as " + e.Point, Slow: wide.Slow,
			})
		}
	}
	return out
}

// home returns the innermost entry that holds the path.
func home(es []Entry, p string) Entry {
	var h Entry
	for _, e := range es {
		if under(p, e.Point) && len(e.Point) >= len(h.Point) {
			h = e
		}
	}
	return h
}

// seenAt returns every path of the view that leads to a path of the host: by its
// own name, through other mounts of its filesystem, and through overlays over a
// directory above it.
func (p Plan) seenAt(target string) []string {
	target = path.Clean(target)
	out := []string{target}
	h := home(p.Entries, target)
	if h.Point == "" || h.Deleted() {
		return out
	}
	within := join(h.Root, below(target, h.Point))
	for _, e := range p.Entries {
		if e.Dev == h.Dev && under(within, e.Root) {
			out = append(out, join(e.Point, below(within, e.Root)))
		}
	}
	for _, e := range p.Entries {
		for _, l := range e.Layers {
			if in := join("/", below(target, l)); under(target, l) && under(in, e.Root) {
				out = append(out, join(e.Point, below(in, e.Root)))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Names returns the other mount points at which the very object at a path of
// the host is mounted: a bind of one file, or of a directory. Such a mount holds
// the object and not the name, and goes on showing it when another one takes its
// place.
func Names(visible []Mount, target string) []string {
	es := make([]Entry, len(visible))
	for i, m := range visible {
		es[i].Mount = m
	}
	h := home(es, target)
	within := join(h.Root, below(target, h.Point))
	var out []string
	for _, m := range visible {
		if m.Dev == h.Dev && m.Root == within && m.Point != target {
			out = append(out, m.Point)
		}
	}
	return out
}
