package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// spinner tells a waiting person on a terminal that a verb still runs, once it
// has lasted a second. Its zero value, for everywhere else, shows nothing.
type spinner struct {
	mu    sync.Mutex
	w     io.Writer
	shown bool // its line is on the terminal
}

// progress starts the spinner of a verb. The returned function ends it.
func (a *app) progress(verb string) (stop func()) {
	a.spin = &spinner{}
	if !terminal(a.err) || !terminal(a.streams.out) || verb == "watch" || verb == "events" {
		return func() {}
	}
	a.spin.w = a.err
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case <-tick.C:
				a.spin.show(fmt.Sprintf("%s … %ds", verb, n))
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(done)
		<-gone
		a.spin.clear()
	})
}

func (s *spinner) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.w, "\r\x1b[K%s", line)
	s.shown = true
}

// clear wipes the line, so that something else can be printed there.
func (s *spinner) clear() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.shown = false
	}
}
