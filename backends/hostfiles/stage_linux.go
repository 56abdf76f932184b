package hostfiles

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/netsandbox/netsandbox/backends"
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
// processors, then their other names, then symlinks and fifos.
func (g *stager) stageAll(ctx context.Context, steps []backends.Step) error {
	first := sort.Search(len(steps), func(i int) bool { return rank(steps[i].Change) >= 1 })
	last := sort.Search(len(steps), func(i int) bool { return rank(steps[i].Change) > 1 })
	if err := g.stageEach(ctx, steps[:first]); err != nil {
		return err
	}
	if err := g.stageFiles(ctx, steps[first:last]); err != nil {
		return err
	}
	if err := g.stageNames(ctx, steps); err != nil {
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
		if steps[i].Change.New.Link != "" {
			continue
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
