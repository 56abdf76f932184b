package upper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/regular"
)

// MarkStaged notes that a path was staged by name: from now on no policy keeps
// it out of a plan.
func MarkStaged(dir string, path change.Path) error {
	f, err := regular.Open(filepath.Join(dir, "staged.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note staged path: %w", err)
	}
	_, err = f.WriteString(path.String() + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("note staged path: %w", err)
	}
	return nil
}

// readStaged returns the paths staged by name. A torn last line is not one yet:
// the stage that was writing it did not return.
func readStaged(dir string) ([]change.Path, error) {
	b, err := regular.Read(filepath.Join(dir, "staged.log"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read staged paths: %w", err)
	}
	var paths []change.Path
	for line := range strings.Lines(string(b)) {
		name, whole := strings.CutSuffix(line, "\n")
		if !whole || name == "" {
			continue
		}
		var p change.Path
		if err := p.UnmarshalText([]byte(name)); err != nil {
			return nil, fmt.Errorf("read staged paths: %w", err)
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// unmarkStaged forgets the paths, and those below them.
func unmarkStaged(dir string, paths []change.Path) error {
	all, err := readStaged(dir)
	if err != nil || len(all) == 0 {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(s change.Path) bool {
		return slices.ContainsFunc(paths, func(p change.Path) bool { return within(string(s), string(p)) })
	})
	if len(kept) == len(all) {
		return nil
	}
	var b strings.Builder
	for _, p := range kept {
		b.WriteString(p.String() + "\n")
	}
	if err := renameio.WriteFile(filepath.Join(dir, "staged.log"), []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("forget staged paths: %w", err)
	}
	return nil
}
