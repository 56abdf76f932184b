package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/workflow/statedir"
)

// Store keeps frozen plans: <state>/plans/<hex digest>/{plan.json, blobs/<sha256>}.
type Store struct{ dir string }

// NewStore returns the store of a state directory. It is made when first needed.
func NewStore(state string) *Store { return &Store{dir: filepath.Join(state, "plans")} }

// staging begins the names of directories that are not published yet. Under the
// store's lock one that exists was left by a crash.
const staging = ".freeze-"

// Path returns where a plan is kept.
func (s *Store) Path(digest string) (string, error) {
	digits, err := hexDigits(digest)
	if err != nil {
		return "", err
	}
	return filepath.Join(s.dir, digits), nil
}

// Freeze copies every wanted file, proves that it is what the plan says, and
// publishes plan and files durably and at once. Freezing a plan again that is
// there and whole keeps its files; one that is damaged is replaced.
//
// open opens the wanted content of a path. When what it reads is not what the
// plan says, the view was at work: the error wraps [ErrMoved], and planning again
// is the way out.
func (s *Store) Freeze(ctx context.Context, p *Plan, open func(change.Path) (*os.File, error)) error {
	final, err := s.Path(p.Digest())
	if err != nil {
		return err
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.sweep(); err != nil {
		return err
	}
	if f, err := s.Open(p.Digest()); err == nil && f.Verify(ctx) == nil {
		return f.refresh(p)
	}
	temp, err := os.MkdirTemp(s.dir, staging)
	if err != nil {
		return fmt.Errorf("freeze plan: %w", err)
	}
	if err := fill(ctx, temp, p, open); err != nil {
		return errors.Join(fmt.Errorf("freeze plan: %w", err), os.RemoveAll(temp))
	}
	if err := s.publish(temp, final); err != nil {
		return errors.Join(fmt.Errorf("publish plan: %w", err), os.RemoveAll(temp))
	}
	return nil
}

// publish gives the directory its name. A damaged predecessor is moved out of
// the way first; it would be swept under its new name after a crash.
func (s *Store) publish(temp, final string) error {
	if err := durable("plan flush", func() error { return flush(temp) }); err != nil {
		return err
	}
	old := temp + ".old"
	err := durable("plan retire", func() error { return os.Rename(final, old) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := durable("plan rename", func() error { return os.Rename(temp, final) }); err != nil {
		return err
	}
	return errors.Join(durable("plan sync", func() error { return syncDir(s.dir) }), os.RemoveAll(old))
}

// fill writes a plan and its files into an empty directory.
func fill(ctx context.Context, dir string, p *Plan, open func(change.Path) (*os.File, error)) error {
	blobs := filepath.Join(dir, "blobs")
	if err := os.Mkdir(blobs, 0o700); err != nil {
		return err
	}
	c := copier{stop: ctx.Err, buf: make([]byte, 256<<10)}
	for _, ch := range holedFirst(p.Changes) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.blob(blobs, ch, open); err != nil {
			return err
		}
	}
	b, err := encode(p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "plan.json"), b, 0o600)
}

// holedFirst lists the changes with content, those of files with holes first: the
// first to bring some bytes decides which holes the one copy of them has.
func holedFirst(cs []change.Change) []change.Change {
	var all []change.Change
	for _, sparse := range []bool{true, false} {
		for _, c := range cs {
			if c.New != nil && c.New.Type == change.Regular && c.New.Sparse == sparse {
				all = append(all, c)
			}
		}
	}
	return all
}

func encode(p *Plan) ([]byte, error) {
	b, err := json.MarshalIndent(p, "", "\t")
	return append(b, '\n'), err
}

// Frozen is a plan in the store, with the bytes it wants.
type Frozen struct {
	*Plan
	dir string
}

// Open reads a plan and checks that it is the one asked for and has every file
// it wants, of the right size. The files' bytes are proved by [Frozen.Verify], and
// again by whoever copies them.
func (s *Store) Open(digest string) (*Frozen, error) {
	dir, err := s.Path(digest)
	if err != nil {
		return nil, err
	}
	b, err := statedir.ReadFile(filepath.Join(dir, "plan.json"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open plan %s: %w", digest, ErrNotFound)
		}
		return nil, damaged(digest, "plan.json is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("open plan %s: %w", digest, err)
	}
	f := &Frozen{Plan: &Plan{}, dir: dir}
	if err := json.Unmarshal(b, f.Plan); err != nil {
		return nil, damaged(digest, err.Error())
	}
	if f.Schema != Schema {
		return nil, damaged(digest, fmt.Sprintf("its schema is %q", f.Schema))
	}
	if got := f.Digest(); got != digest {
		return nil, damaged(digest, "its content has the digest "+got)
	}
	for _, w := range f.wants() {
		st, err := os.Lstat(f.blob(w.SHA256))
		if err != nil {
			return nil, damaged(digest, err.Error())
		}
		if !st.Mode().IsRegular() || st.Size() != w.Size {
			return nil, damaged(digest, fmt.Sprintf("file %s is not the %d bytes it was", w.SHA256, w.Size))
		}
	}
	return f, nil
}

func damaged(digest, why string) error {
	return fmt.Errorf("open plan %s: %w: %s", digest, ErrDamaged, why)
}

// refresh brings what is in no digest up to date: the cycle, the processes, the
// notes of the plan made last.
func (f *Frozen) refresh(p *Plan) error {
	was, err := encode(f.Plan)
	if err != nil {
		return err
	}
	is, err := encode(p)
	if err != nil || bytes.Equal(was, is) {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(f.dir, "plan.json"), is, 0o600); err != nil {
		return fmt.Errorf("refresh plan: %w", err)
	}
	return nil
}

// Open opens the frozen bytes of a content hash.
func (f *Frozen) Open(sha256 string) (io.ReadCloser, error) {
	if !isHash(sha256) {
		return nil, fmt.Errorf("open wanted content: %q is no hash", sha256)
	}
	b, err := statedir.OpenFile(f.blob(sha256), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open wanted content: %w", err)
	}
	return b, nil
}

// Verify reads every file and proves its hash.
func (f *Frozen) Verify(ctx context.Context) error {
	c := copier{stop: ctx.Err, buf: make([]byte, 256<<10)}
	for _, w := range f.wants() {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := os.Open(f.blob(w.SHA256))
		if err != nil {
			return fmt.Errorf("verify plan: %w", err)
		}
		sum, err := c.hash(nil, b, w.Sparse)
		if err := errors.Join(err, b.Close()); err != nil {
			return fmt.Errorf("verify plan: %w", err)
		}
		if sum != w.SHA256 {
			return damaged(f.Digest(), fmt.Sprintf("file %s has the hash %s", w.SHA256, sum))
		}
	}
	return nil
}

// wants lists the distinct files that the plan needs.
func (f *Frozen) wants() []*change.Entry {
	var all []*change.Entry
	seen := map[string]bool{}
	for _, c := range f.Changes {
		if c.New != nil && c.New.Type == change.Regular && !seen[c.New.SHA256] {
			seen[c.New.SHA256] = true
			all = append(all, c.New)
		}
	}
	return all
}

func (f *Frozen) blob(sha256 string) string { return filepath.Join(f.dir, "blobs", sha256) }

// Prune removes every plan whose digest is not to be kept, and what a crash left
// half made.
func (s *Store) Prune(keep func(digest string) bool) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("prune plans: %w", err)
	}
	errs := []error{s.sweep()}
	for _, e := range entries {
		if isHash(e.Name()) && !keep("sha256:"+e.Name()) {
			errs = append(errs, s.remove(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// remove takes the plan's name away first: half a plan must not keep it.
func (s *Store) remove(name string) error {
	gone := filepath.Join(s.dir, staging+name)
	if err := os.Rename(filepath.Join(s.dir, name), gone); err != nil {
		return fmt.Errorf("prune plan %s: %w", name, err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("prune plan %s: %w", name, err)
	}
	return nil
}

// sweep removes what was never published. The caller holds the lock.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("sweep plans: %w", err)
	}
	stale := slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), staging) })
	for _, e := range stale {
		if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
			return fmt.Errorf("sweep plans: %w", err)
		}
	}
	return nil
}

var _ backends.Wanted = (*Frozen)(nil)
