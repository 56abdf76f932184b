package lease

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// How often the keeper's own probes run. They are gentle: one at a time, rarer
// while all is well, and rarer again when a failure goes on.
const (
	probeCalm = 500 * time.Millisecond
	probeSoon = 100 * time.Millisecond
	probeMost = 400 * time.Millisecond
)

// probe runs the built-in probes beside the watch, until stop is called, and
// announces a hard break: failures without a success between them for the whole
// bound, and more than one of them.
func (k *keeper) probe(ctx context.Context) (stop func()) {
	k.broke = make(chan string, 1)
	if k.cfg.Probe == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if what := prober(ctx, k.terms.HardBreak, k.cfg.Probe); what != "" {
			k.broke <- what
			_, _ = unix.Write(k.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd takes a count in host order; any is a wake
		}
	}()
	return func() { cancel(); <-ended }
}

// prober returns what broke, or "" when ctx ended first.
func prober(ctx context.Context, bound time.Duration, try func(context.Context) error) string {
	var since time.Time // of the first failure in a row
	failures, pause := 0, probeCalm
	for ctx.Err() == nil {
		began := time.Now()
		// One probe may use up what is left, not more.
		limit, cancel := context.WithTimeout(ctx, bound)
		err := try(limit)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ""
		case err == nil:
			since, failures, pause = time.Time{}, 0, probeCalm
		case failures == 0:
			since, failures, pause = began, 1, probeSoon
		default:
			failures++
			pause = min(2*pause, probeMost)
			if time.Since(since) >= bound {
				return err.Error()
			}
		}
		if !sleep(ctx, pause) {
			return ""
		}
	}
	return ""
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
