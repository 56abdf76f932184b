package hostfiles

import (
	"errors"
	"runtime"
	"sync"
)

// workers is how many goroutines n entries are worth: one per processor, and not
// more than four, because beyond that a directory's lock is what they wait for.
// Traced steps come one after the other.
func workers(n int) int {
	if TestOnlyStep != nil {
		return 1
	}
	return max(1, min(runtime.GOMAXPROCS(0), 4, n/few))
}

// spread calls part for contiguous pieces of 0..n at once.
func spread(n int, part func(lo, hi int) error) error {
	k := workers(n)
	if k == 1 {
		return part(0, n)
	}
	errs := make([]error, k)
	var wg sync.WaitGroup
	for w := range k {
		wg.Go(func() { errs[w] = part(w*n/k, (w+1)*n/k) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// few is the number of entries below which work is neither spread over
// processors nor flushed a whole filesystem at a time. syncfs(2) writes out
// everybody's dirty data, which on a busy machine may be gigabytes; above this,
// one journal commit per file costs more.
const few = 32
