package mountplan

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends/internal/fsid"
)

// The treatments, as `create` prints them.
const (
	Layer    = "layer"     // an overlay of its own
	Alias    = "alias"     // a second name of something already in the view
	Copy     = "copy"      // a private copy of a single file
	ReadOnly = "read-only" // shown, cannot be written
	Excluded = "excluded"  // covered, so that it is never mistaken for empty
)

// Entry is how one mount is to appear. Whether a mount is of a single file is
// only seen in the view, so Layer may still turn into Copy there.
type Entry struct {
	Mount
	Treatment string
	Reason    string
	// Key names the layer's directory.
	Key string
	// Of and Rel say for an alias which entry shows the same filesystem, by index
	// in the plan, and where in it.
	Of  int
	Rel string
	// Implied marks an alias that is no mount of the host; see [implied].
	Implied bool
	// Slow marks what cannot be reached without a filesystem whose server can be
	// gone: it is touched only by something with a time limit.
	Slow bool
	// Cover: an excluded mount is hidden below an unreadable directory. Kernel
	// filesystems need none.
	Cover bool
}

// Plan is the mounts of a view in the order to attach them; the first is "/".
type Plan struct {
	Entries []Entry
	// State and Covers are the paths in the view at which the state directory and
	// the hidden host paths would be seen, through whatever mount.
	State  []string
	Covers []string
}

// ErrNoRoot: the calling process is in a chroot, whose root is no mount.
var ErrNoRoot = errors.New("the root directory is not a mount point")

// kernel lists filesystems that are views of the kernel, not places for files.
var kernel = []string{
	"binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
	"devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore",
	"rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
}

// local lists filesystems that cannot wait for another machine or process.
var local = fsid.Local

// automount is the filesystem whose directories mount something when they are
// looked into.
const automount = "autofs"

// replaced are the directories that a view has of its own.
var replaced = []string{"/proc", "/sys", "/dev", "/run"}

// Make plans the view of the given mounts with stateRoot and hide covered. holds
// says of which mount points there are layers with something in them: those stay
// layers, whatever other mounts have come or changed, because what a layer holds
// must be seen where it is planned for.
func Make(all []Mount, stateRoot string, hide []string, holds func(point string) bool) (Plan, error) {
	ms := Visible(all)
	k := keeper(holds)
	slices.SortStableFunc(ms, k.bySource)
	es := make([]Entry, 0, len(ms))
	for _, m := range ms {
		es = append(es, k.treat(m, es, stateRoot))
	}
	slow(es, all)
	p, err := arrange(append(es, implied(es)...))
	if err != nil {
		return Plan{}, err
	}
	p.State = p.seenAt(stateRoot)
	for _, h := range hide {
		p.Covers = append(p.Covers, p.seenAt(h)...)
	}
	slices.Sort(p.Covers)
	p.Covers = slices.Compact(p.Covers)
	return p, nil
}

// arrange puts the entries into the order of their paths, in which each comes
// after what it is mounted in.
func arrange(es []Entry) (Plan, error) {
	order := make([]int, len(es))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(es[a].Point, es[b].Point) })
	if len(order) == 0 || es[order[0]].Point != "/" {
		return Plan{}, ErrNoRoot
	}
	place := make([]int, len(es))
	for to, from := range order {
		place[from] = to
	}
	p := Plan{Entries: make([]Entry, 0, len(es))}
	for _, from := range order {
		e := es[from]
		if e.Treatment == Alias {
			e.Of = place[e.Of]
		}
		p.Entries = append(p.Entries, e)
	}
	if root := p.Entries[0]; root.Treatment != Layer {
		return Plan{}, fmt.Errorf("layer the root filesystem (%s): %s", root.FS, root.Reason)
	}
	return p, nil
}

// treat decides about m; done holds the mounts of the same device with shorter
// roots, which is where an alias can point.
func (k keeper) treat(m Mount, done []Entry, stateRoot string) Entry {
	e := Entry{Mount: m}
	switch {
	case m.Point == "/":
	case underAny(m.Point, replaced...):
		e.Treatment, e.Reason = Excluded, "the view has its own "+top(m.Point)
		return e
	case under(m.Point, stateRoot):
		e.Treatment, e.Reason = Excluded, "below the state directory"
		return e
	case m.FS == automount:
		e.Treatment, e.Reason, e.Cover = Excluded, "it mounts on demand, and a view triggers nothing on the host", true
		return e
	case slices.Contains(kernel, m.FS):
		e.Treatment, e.Reason = Excluded, "kernel filesystem"
		return e
	}
	if i := k.source(m, done); i >= 0 {
		o := done[i]
		e.Treatment, e.Of, e.Rel = Alias, i, below(m.Root, o.Root)
		e.Reason = "same files as " + join(o.Point, e.Rel)
		return e
	}
	e.Treatment, e.Key = Layer, Key(m.Point)
	return e
}

// slow marks the mounts of a filesystem whose server can be gone, and those that
// are reached only through one: below it, or on a directory that an automounter
// watches.
func slow(es []Entry, all []Mount) {
	fs := map[int]string{}
	for _, m := range all {
		fs[m.ID] = m.FS
	}
	var waits []string
	for i := range es {
		e := &es[i]
		// The root must be looked at anyway.
		if e.Point == "/" || slices.Contains(local, e.FS) && fs[e.Parent] != automount {
			continue
		}
		e.Slow = true
		if !slices.Contains(kernel, e.FS) {
			waits = append(waits, e.Point)
		}
	}
	for i := range es {
		es[i].Slow = es[i].Slow || underAny(es[i].Point, waits...)
	}
}

// Key is the directory name of the layer over a mount point: readable, without
// a slash, and no two points share one.
func Key(point string) string {
	if point == "/" {
		return "root"
	}
	k := strings.NewReplacer("%", "%25", "/", "%2f").Replace(point)
	if len(k) > 200 { // NAME_MAX is 255
		sum := sha256.Sum256([]byte(point))
		k = k[:160] + "%" + hex.EncodeToString(sum[:8])
	}
	return k
}

// top returns the first element of an absolute path.
func top(p string) string {
	if i := strings.IndexByte(p[1:], '/'); i >= 0 {
		return p[:i+1]
	}
	return p
}
