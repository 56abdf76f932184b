package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestHardBreakIsAnUnbrokenRowOfFailures(t *testing.T) {
	cut := errors.New("connect: no route to host")
	for _, tt := range []struct {
		name   string
		answer func(at time.Duration, n int) error
		broken bool
		within time.Duration
	}{
		{"always well", func(time.Duration, int) error { return nil }, false, 0},
		{"cut from the start", func(time.Duration, int) error { return cut }, true, 2 * time.Second},
		{"cut after a minute", func(at time.Duration, _ int) error {
			if at < time.Minute {
				return nil
			}
			return cut
		}, true, time.Minute + 2*time.Second},
		{"every other probe fails", func(_ time.Duration, n int) error {
			if n%2 == 0 {
				return cut
			}
			return nil
		}, false, 0},
		{"down for less than the bound", func(at time.Duration, _ int) error {
			if at > time.Minute && at < time.Minute+900*time.Millisecond {
				return cut
			}
			return nil
		}, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				began, n := time.Now(), 0
				what := prober(ctx, time.Second, func(context.Context) error {
					n++
					return tt.answer(time.Since(began), n)
				})
				if took := time.Since(began); (what != "") != tt.broken || tt.broken && took > tt.within {
					t.Errorf("prober said %q after %v", what, took)
				}
				if n > 5*60*4 {
					t.Errorf("%d probes in five minutes: more than four a second", n)
				}
			})
		})
	}
}

func TestHangingProbeCountsAsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		what := prober(t.Context(), time.Second, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if what == "" || time.Since(began) > 3*time.Second {
			t.Errorf("prober said %q after %v", what, time.Since(began))
		}
	})
}
