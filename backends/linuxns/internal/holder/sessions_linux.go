package holder

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// sessions are the clients that were handed to a PID 1 and are still connected.
// The holder keeps each connection open to see its end: between the hand-over
// and the fork of the command nothing else shows that the view is in use.
type sessions struct {
	mu   sync.Mutex
	open map[*wire.Conn]*view
}

// add takes over a connection; ended is called when its client is gone.
func (s *sessions) add(v *view, c *wire.Conn, ended func()) {
	s.mu.Lock()
	if s.open == nil {
		s.open = map[*wire.Conn]*view{}
	}
	s.open[c] = v
	s.mu.Unlock()
	if !v.alive() { // died meanwhile, and closeAll may have run already
		s.closeAll(v)
		return
	}
	go func() {
		c.HungUp()
		s.mu.Lock()
		delete(s.open, c)
		s.mu.Unlock()
		c.Close()
		ended()
	}()
}

func (s *sessions) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if !hungUp(c) {
			return true
		}
	}
	return false
}

// closeAll lets the clients of a dead view see its end.
func (s *sessions) closeAll(v *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, of := range s.open {
		if of == v {
			c.Close()
			delete(s.open, c)
		}
	}
}

// hungUp looks without waiting: the goroutine that waits may not have run yet.
func hungUp(c *wire.Conn) bool {
	gone := true
	c.Control(func(fd int) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0
	})
	return gone
}
