package hostfiles

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// errBusy: a file is written faster than it can be read.
var errBusy = errors.New("file changes while it is read")

// Host is the host's files below a root.
type Host struct {
	root string
	base change.Path
}

// New returns the adapter for the files below root, "/" but for tests. It does
// no I/O; each call opens the root anew, so a long-lived Host pins no mount.
func New(root string) *Host { return &Host{root: root, base: "/"} }

// Within implements [backends.Bounded].
func (h *Host) Within(base string) backends.Host { return &Host{root: h.root, base: change.Path(base)} }

// Kind implements [backends.Host].
func (h *Host) Kind() change.Kind { return change.KindFile }

// Observe implements [backends.Host]. A path below something that is no
// directory, a symlink to one included, has nothing at it.
func (h *Host) Observe(ctx context.Context, paths []change.Path) ([]*change.Entry, error) {
	return h.ObserveKnown(ctx, paths, make([]*change.Entry, len(paths)))
}

// ObserveKnown is Observe for paths that were observed before: content of an
// object with unchanged identity, size and change time is not read again.
func (h *Host) ObserveKnown(ctx context.Context, paths []change.Path, known []*change.Entry) ([]*change.Entry, error) {
	if len(known) != len(paths) {
		return nil, fmt.Errorf("observe: %d paths, %d known entries", len(paths), len(known))
	}
	t, err := openTree(h.root)
	if err != nil {
		return nil, err
	}
	defer t.close()
	entries := make([]*change.Entry, len(paths))
	for i, p := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if entries[i], err = t.observe(p, known[i]); err != nil {
			return nil, fmt.Errorf("observe %s: %w", p, err)
		}
	}
	return entries, nil
}

func (t *tree) observe(p change.Path, known *change.Entry) (*change.Entry, error) {
	if !valid(p) {
		return nil, unix.EINVAL
	}
	dir, base := t.root, "."
	if p != "/" {
		var err error
		if dir, base, err = t.parent(p); err != nil {
			if absent(err) || errors.Is(err, unix.ELOOP) {
				return nil, nil
			}
			return nil, err
		}
	}
	e, err := t.entry(dir, base, known)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return e, err
}

var _ backends.Host = (*Host)(nil)
