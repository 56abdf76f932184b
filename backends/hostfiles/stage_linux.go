package hostfiles

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Stage implements [backends.Host]. Nothing that a program could read changes:
// every object is made complete in the hidden directory of its mount, and one
// flush per filesystem makes all of them durable.
func (h *Host) Stage(ctx context.Context, steps []backends.Step, wanted backends.Wanted) ([]backends.Step, error) {
	t, err := openTree(h.root)
	if err != nil {
		return nil, err
	}
	defer t.close()
	steps = slices.Clone(steps)
	if err := t.makePlaces(steps); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	g := newStager(t, tops(steps))
	g.wanted = wanted
	defer g.leave()
	if err := g.stageAll(ctx, steps); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	if err := g.finishDirs(steps); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	if err := t.flushStaged(steps, g.tops); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	foresee(steps, time.Now().UnixNano())
	return steps, nil
}

// stageAll makes directories in order, then files, which are most of it, on all
// processors, then symlinks.
func (g *stager) stageAll(ctx context.Context, steps []backends.Step) error {
	first := sort.Search(len(steps), func(i int) bool { return rank(steps[i].Change) >= 1 })
	last := sort.Search(len(steps), func(i int) bool { return rank(steps[i].Change) > 1 })
	if err := g.stageEach(ctx, steps[:first]); err != nil {
		return err
	}
	if err := g.stageFiles(ctx, steps[first:last]); err != nil {
		return err
	}
	return g.stageEach(ctx, steps[last:])
}

func (g *stager) stageEach(ctx context.Context, steps []backends.Step) error {
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if steps[i].Change.New == nil || steps[i].Place.Name == "" {
			continue
		}
		if err := g.stage(&steps[i], nil); err != nil {
			return fmt.Errorf("%s: %w", steps[i].Change.Path, err)
		}
	}
	return nil
}

// stageFiles writes regular files. The caller's goroutine opens what is wanted:
// it may be locked to a thread whose mounts the others do not see.
func (g *stager) stageFiles(ctx context.Context, steps []backends.Step) error {
	type job struct {
		step    *backends.Step
		content io.ReadCloser
	}
	jobs := make(chan job, few) // so that a locked thread does not change hands at each
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range workers(len(steps)) {
		t, err := g.clone()
		if err != nil {
			cancel(err)
			break
		}
		wg.Go(func() {
			defer t.close()
			own := newStager(t, g.tops)
			defer own.leave()
			for j := range jobs {
				err := ctx.Err()
				if err == nil {
					err = own.stage(j.step, j.content)
				}
				if err != nil {
					cancel(fmt.Errorf("%s: %w", j.step.Change.Path, err))
				}
				j.content.Close()
			}
		})
	}
	for i := range steps {
		if ctx.Err() != nil {
			break
		}
		content, err := g.wanted.Open(steps[i].Change.New.SHA256)
		if err != nil {
			cancel(fmt.Errorf("%s: open wanted content: %w", steps[i].Change.Path, err))
			break
		}
		jobs <- job{&steps[i], content}
	}
	close(jobs)
	wg.Wait()
	return context.Cause(ctx)
}

// places returns the hidden directories of a transaction, sorted.
func places(steps []backends.Step) []change.Path {
	var dirs []change.Path
	for _, s := range steps {
		if s.Place.Dir != "" {
			dirs = append(dirs, s.Place.Dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// makePlaces makes the hidden directories. One that is there was begun by a
// Stage that died; nothing of it was ever swapped, so it starts again.
func (t *tree) makePlaces(steps []backends.Step) error {
	for _, d := range places(steps) {
		err := durable("mkdir "+string(d), func() error {
			up, base, err := t.parent(d)
			if err != nil {
				return err
			}
			mode := placeMode()
			return quietly(up, func() error {
				err := unix.Mkdirat(up, base, mode)
				if err == unix.EEXIST {
					if err = removeAll(up, base); err == nil {
						err = unix.Mkdirat(up, base, mode)
					}
				}
				if err != nil {
					return &os.PathError{Op: "mkdir", Path: d.String(), Err: err}
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		if _, err := t.place(d); err != nil {
			return err
		}
	}
	return nil
}

// placeMode is the mode of a hidden directory. Root needs no permission bits to
// use it, and nobody else gets any; an ordinary owner needs them.
func placeMode() uint32 {
	if os.Geteuid() == 0 {
		return 0
	}
	return 0o700
}

// stager makes the wanted objects of one Stage.
type stager struct {
	*tree
	wanted backends.Wanted
	tops   map[string]change.Path
	labels map[change.Path]map[string][]byte // of new objects, by the target's parent
	dir    int                               // the last directory made by us that was filled
	at     string
}

func newStager(t *tree, tops map[string]change.Path) *stager {
	return &stager{tree: t, tops: tops, labels: map[change.Path]map[string][]byte{}}
}

// where returns the directory and the name under which s is staged. That
// directory stays the stager's.
func (g *stager) where(s backends.Step) (int, string, error) {
	hidden, err := g.place(s.Place.Dir)
	if err != nil || s.Place.Within == "" {
		return hidden, s.Place.Name, err
	}
	up, base := split(change.Path("/" + inside(s, g.tops[s.Place.Within])))
	key := string(s.Place.Dir + up)
	if g.at == key {
		return g.dir, base, nil
	}
	fd, err := openBelow(hidden, string(up[1:]), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, "", &os.PathError{Op: "open", Path: change.Escape(key), Err: err}
	}
	g.leave()
	g.dir, g.at = fd, key
	return fd, base, nil
}

func (g *stager) leave() {
	if g.at != "" {
		unix.Close(g.dir)
	}
	g.at = ""
}

// stage makes one object; content is a regular file's.
func (g *stager) stage(s *backends.Step, content io.Reader) error {
	dir, name, err := g.where(*s)
	if err != nil {
		return err
	}
	if s.Place.Within != "" {
		up, err := stat(dir, "")
		if err != nil {
			return err
		}
		s.Place.Parent = up.identity()
	}
	xattrs, err := g.xattrs(*s)
	if err != nil {
		return err
	}
	n, err := create(dir, name, s.Change.New, xattrs, content, g.buf)
	if err != nil {
		return err
	}
	s.Place.Staged = n.identity()
	return nil
}

// xattrs returns what the new object has to keep of the old one, or to get from
// the directory it will be in.
func (g *stager) xattrs(s backends.Step) (map[string][]byte, error) {
	old, want := s.Change.Old, s.Change.New
	if old != nil && old.Type == want.Type {
		dir, base, err := g.parent(s.Change.Path)
		if err != nil {
			return nil, err
		}
		return source{dir, base, true}.xattrs()
	}
	at := s.Change.Path // whose parent is on the host: for a carried step its carrier's
	if s.Place.Within != "" {
		at = g.tops[s.Place.Within]
	}
	up, _ := split(at)
	if m, ok := g.labels[up]; ok {
		return m, nil
	}
	dir, _, err := g.parent(at)
	if err != nil {
		return nil, err
	}
	m, err := source{dir: dir}.xattrs()
	g.labels[up] = m
	return m, err
}

// finishDirs gives new directories their metadata, now that they are full.
func (g *stager) finishDirs(steps []backends.Step) error {
	for _, s := range slices.Backward(steps) {
		want := s.Change.New
		if want == nil || s.Place.Name == "" || want.Type != change.Directory {
			continue
		}
		if err := g.finishDir(s); err != nil {
			return fmt.Errorf("%s: %w", s.Change.Path, err)
		}
	}
	return nil
}

func (g *stager) finishDir(s backends.Step) error {
	dir, name, err := g.where(s)
	if err != nil {
		return err
	}
	xattrs, err := g.xattrs(s)
	if err != nil {
		return err
	}
	fd, err := openBelow(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	return attribute(fd, s.Change.New, xattrs)
}
