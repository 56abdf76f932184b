package workflow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/netsandbox/netsandbox/backends/change"
)

// render tells one change as text.
func (w *Workflow) render(ctx context.Context, p place, c change.Change, secrets bool) (string, error) {
	var was, now []byte
	var err error
	if c.Old != nil && c.Old.Type == change.Regular && c.Old.Size <= change.DiffLimit {
		if was, err = readHost(c.Path); err != nil {
			return "", err
		}
	}
	if c.New != nil && c.New.Type == change.Regular && c.New.Size <= change.DiffLimit {
		f, err := p.view.Content(ctx, c.Path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		if now, err = io.ReadAll(io.LimitReader(f, change.DiffLimit)); err != nil {
			return "", fmt.Errorf("read candidate: %w", err)
		}
	}
	return change.Text(c, was, now, secrets), nil
}

// readHost reads the host's side of a difference. What vanished meanwhile reads
// as empty: the difference itself says that it was there.
func readHost(path change.Path) ([]byte, error) {
	// Nor is what a link in the place of a directory above leads to.
	dir := filepath.Dir(string(path))
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
		return nil, nil
	}
	// Something else may stand there by now: a link is not the file, and a FIFO
	// would make the reader wait.
	f, err := os.OpenFile(string(path), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read host file: %w", err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && !fi.Mode().IsRegular() {
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, change.DiffLimit))
	if err != nil {
		return nil, fmt.Errorf("read host file: %w", err)
	}
	return b, nil
}
