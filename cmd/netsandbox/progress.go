package main

import (
	"fmt"
	"sync"
	"time"
)

// progress tells a waiting person on a terminal that a verb still runs, once it
// has lasted a second. Elsewhere it prints nothing. The returned function ends
// it and wipes its line.
func (a *app) progress(verb string) (stop func()) {
	if !terminal(a.err) || !terminal(a.streams.out) || verb == "watch" || verb == "events" {
		return func() {}
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-done:
				if n > 1 {
					fmt.Fprint(a.err, "\r\x1b[K")
				}
				return
			case <-tick.C:
				fmt.Fprintf(a.err, "\r\x1b[K%s … %ds", verb, n)
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(done)
		<-gone
	})
}
