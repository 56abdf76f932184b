package upper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// Open opens the wanted content of a regular file for reading. A plan opens
// thousands one by one, so it looks at uppers only, and not, as [Diff] has to, at
// the host's mounts.
func Open(dir string, p change.Path) (*os.File, error) {
	ls, err := openUppers(dir, p)
	if err != nil {
		return nil, err
	}
	defer closeLayers(ls)
	l, rel, err := locate(ls, p)
	if err != nil {
		return nil, fmt.Errorf("open wanted content: %w", err)
	}
	// O_NONBLOCK: a FIFO in the file's place must not block us.
	fd, err := l.open(rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOATIME)
	if err != nil {
		return nil, fmt.Errorf("open wanted content of %s: %w", p, err)
	}
	f := os.NewFile(uintptr(fd), string(p))
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(fmt.Errorf("open wanted content of %s: not a regular file", p), err)
	}
	return f, nil
}

// openUppers opens the layers at or above a path, outermost mount first. One
// without entries holds no content; its mount may be gone, and what is wanted
// there be the outer layer's.
func openUppers(dir string, p change.Path) (_ []*layer, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, "layers"))
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	var ls []*layer
	defer func() {
		if err != nil {
			closeLayers(ls)
		}
	}()
	for _, e := range entries {
		l, err := openUpper(filepath.Join(dir, "layers", e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // still being made
		}
		if err != nil {
			return nil, fmt.Errorf("open layer %s: %w", e.Name(), err)
		}
		if _, above := l.rel(p); !above || l.bare() {
			l.close()
			continue
		}
		ls = append(ls, l)
	}
	slices.SortFunc(ls, func(a, b *layer) int { return strings.Compare(a.source.Point, b.source.Point) })
	return ls, nil
}
