package upper

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/fsid"
	"github.com/netsandbox/netsandbox/backends/internal/regular"
)

// Source is the content of a layer's source.json: the mount of the host that is
// the layer's lower.
type Source = fsid.Source

// layer is one upper with its lower, both open.
type layer struct {
	source Source
	dir    string // layers/<key>
	upper  int
	lower  int // -1 when there is none to look at
	why    string
}

// openLayers opens every layer of an environment, outermost mount first. A
// layer whose source.json is not there yet is still being made and holds nothing.
func openLayers(dir string) (_ []*layer, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, "layers"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	var ls []*layer
	defer func() {
		if err != nil {
			closeLayers(ls)
		}
	}()
	table, err := readTable()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		l, err := openLayer(filepath.Join(dir, "layers", e.Name()), table)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open layer %s: %w", e.Name(), err)
		}
		if l.lower < 0 && l.bare() {
			l.close() // the mount went, and nothing was changed on it
			continue
		}
		ls = append(ls, l)
	}
	slices.SortFunc(ls, func(a, b *layer) int { return strings.Compare(a.source.Point, b.source.Point) })
	return ls, nil
}

func openLayer(dir string, table mountTable) (*layer, error) {
	l, err := openUpper(dir)
	if err != nil {
		return nil, err
	}
	if err := l.openLower(table); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// openUpper opens a layer without its lower.
func openUpper(dir string) (*layer, error) {
	b, err := regular.Read(filepath.Join(dir, "source.json"))
	if err != nil {
		return nil, err
	}
	l := &layer{dir: dir, upper: -1, lower: -1}
	if err := json.Unmarshal(b, &l.source); err != nil {
		return nil, fmt.Errorf("parse source.json: %w", err)
	}
	if !path.IsAbs(l.source.Point) || path.Clean(l.source.Point) != l.source.Point {
		return nil, fmt.Errorf("source.json: mount point %q", l.source.Point)
	}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOATIME
	if l.upper, err = unix.Open(filepath.Join(dir, "upper"), flags, 0); err != nil {
		return nil, fmt.Errorf("open upper: %w", err)
	}
	return l, nil
}

// openLower opens the host's side. A mount that is gone, another one in its
// place, or one that does not answer leaves the layer without a lower; [Diff]
// says so.
func (l *layer) openLower(table mountTable) error {
	if l.why = table.obstacle(l.source); l.why != "" {
		return nil
	}
	how := &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOATIME, Resolve: unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := openat2(unix.AT_FDCWD, l.source.Point, how)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		l.why = mountGone
		return nil
	}
	if err != nil {
		return fmt.Errorf("open lower %s: %w", l.source.Point, err)
	}
	same, err := mountedAt(l.source, fd)
	if err != nil || !same {
		unix.Close(fd)
		l.why = mountGone
		return err
	}
	l.lower = fd
	return nil
}

// bare reports an upper without entries.
func (l *layer) bare() bool {
	list, err := names(l.upper)
	return err == nil && len(list) == 0
}

func (l *layer) close() {
	for _, fd := range []int{l.upper, l.lower} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func closeLayers(ls []*layer) {
	for _, l := range ls {
		l.close()
	}
}

// path names an entry of the layer as the host does.
func (l *layer) path(rel string) change.Path { return change.Path(path.Join(l.source.Point, rel)) }

// rel names a host's path within the layer, when it is at or below the mount
// point; "." is the mount point itself.
func (l *layer) rel(p change.Path) (string, bool) {
	if !within(string(p), l.source.Point) {
		return "", false
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(string(p), l.source.Point), "/")
	return cmp.Or(rel, "."), true
}

// locate finds the layer that holds a path: the innermost mount above it, and
// the path's name relative to that. "." is the mount point itself.
func locate(ls []*layer, p change.Path) (*layer, string, error) {
	for _, l := range slices.Backward(ls) {
		if rel, ok := l.rel(p); ok {
			return l, rel, nil
		}
	}
	return nil, "", fmt.Errorf("%s: %w", p, os.ErrNotExist)
}

// open opens an object of the upper below the layer, following nothing.
func (l *layer) open(rel string, flags uint64) (int, error) {
	return openat2(l.upper, rel, &unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}
