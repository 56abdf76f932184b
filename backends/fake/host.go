package fake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Host is a host in memory. Its zero value is an empty one.
type Host struct {
	// Fault, when set, is called before each operation. An error keeps the
	// operation from being done; a panic is a crash, which the test recovers.
	Fault func(op string) error

	objects map[change.Path]object // in place
	hidden  map[change.Path]object // staged objects, and originals after a swap
	last    uint64
}

// object is one thing with a number of its own.
type object struct {
	number uint64
	entry  change.Entry
}

// Put makes path a regular file with content, as somebody on the host would: it
// is another object than what stood there.
func (h *Host) Put(p change.Path, content string) {
	h.ready()
	h.objects[p] = h.make(*Entry(content))
}

// Remove takes what is at path away.
func (h *Host) Remove(p change.Path) { delete(h.objects, p) }

// Write changes the content at path and keeps the object.
func (h *Host) Write(p change.Path, content string) {
	h.objects[p] = object{h.objects[p].number, *Entry(content)}
}

// Entry returns the entry of a regular file with content.
func Entry(content string) *change.Entry {
	sum := sha256.Sum256([]byte(content))
	return &change.Entry{Type: change.Regular, Mode: 0o644, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

// String renders what is in place, one line per path, sorted.
func (h *Host) String() string { return render(h.objects) }

// Hidden renders what is staged or kept as a backup.
func (h *Host) Hidden() string { return render(h.hidden) }

func render(m map[change.Path]object) string {
	var b strings.Builder
	for _, p := range slices.Sorted(maps.Keys(m)) {
		e := m[p].entry
		fmt.Fprintf(&b, "%s %s %04o %d:%d %.8s%s\n", p, e.Type, e.Mode, e.UID, e.GID, e.SHA256, attributes(e))
	}
	return b.String()
}

func attributes(e change.Entry) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(e.Xattrs)) {
		fmt.Fprintf(&b, " %s=%x", name, e.Xattrs[name])
	}
	return b.String()
}

// ready makes the zero value usable.
func (h *Host) ready() {
	if h.objects == nil {
		h.objects, h.hidden = map[change.Path]object{}, map[change.Path]object{}
	}
}

func (h *Host) make(e change.Entry) object {
	h.last++
	e.ID = &change.Identity{Ino: h.last}
	return object{h.last, e}
}

// do is one operation.
func (h *Host) do(op string, p change.Path, f func()) error {
	if h.Fault != nil {
		if err := h.Fault(op); err != nil {
			return fmt.Errorf("%s %s: %w", op, p, err)
		}
	}
	f()
	return nil
}

// Kind implements [backends.Host].
func (h *Host) Kind() change.Kind { return change.KindFile }

// Observe implements [backends.Host].
func (h *Host) Observe(_ context.Context, paths []change.Path) ([]*change.Entry, error) {
	entries := make([]*change.Entry, len(paths))
	for i, p := range paths {
		entries[i] = h.at(p)
	}
	return entries, nil
}

func (h *Host) at(p change.Path) *change.Entry {
	o, ok := h.objects[p]
	if !ok {
		return nil
	}
	e := o.entry
	e.ID = &change.Identity{Ino: o.number}
	return &e
}

// Preflight implements [backends.Host].
func (h *Host) Preflight(_ context.Context, cs []change.Change) ([]change.Blocker, error) {
	var found []change.Blocker
	for _, c := range cs {
		if !h.at(c.Path).Same(c.Old) {
			found = append(found, change.Blocker{What: "conflict", Subject: c.Path.String(), Reason: "the host differs"})
		}
	}
	return found, nil
}

// Snapshot implements [backends.Host].
func (h *Host) Snapshot(_ context.Context, txn string, cs []change.Change) ([]backends.Step, error) {
	steps := make([]backends.Step, len(cs))
	for i, c := range cs {
		now := h.at(c.Path)
		if !now.Same(c.Old) {
			return nil, fmt.Errorf("snapshot %s: %w", c.Path, backends.ErrHostChanged)
		}
		steps[i] = backends.Step{Change: c, Place: backends.Place{Dir: "/." + change.Path(txn), Name: fmt.Sprint(i)}}
		if now != nil {
			steps[i].Change.Old, steps[i].Place.Original = now, now.ID
		}
	}
	return steps, nil
}

var _ backends.Host = (*Host)(nil)
