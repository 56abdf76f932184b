package faultfs

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Op is a set of requests that a device gets.
type Op uint8

// The requests.
const (
	Read Op = 1 << iota
	Write
	Flush // of the device's write cache: what makes a sync a sync
	All   = Read | Write | Flush
)

// rule makes requests fail.
type rule struct {
	Ops   Op
	After int // so many of them succeed first
	Times int // so many of them fail; 0 for all
}

// status is what a device tells about itself.
type status struct {
	Requests [3]int // by Op: read, write, flush
	Failed   int
}

// device is the server's side: the image and the faults.
type device struct {
	image *os.File

	mu     sync.Mutex
	rule   *rule
	dead   bool // without power
	cache  []overwritten
	status status
}

// overwritten is what a write that was not flushed yet has replaced.
type overwritten struct {
	at  int64
	was []byte
}

// admit counts a request and says how it ends.
func (d *device) admit(op Op) unix.Errno {
	for i := range d.status.Requests {
		if op == 1<<i {
			d.status.Requests[i]++
		}
	}
	if d.dead {
		d.status.Failed++
		return unix.EIO
	}
	if d.rule == nil || d.rule.Ops&op == 0 {
		return 0
	}
	if d.rule.After > 0 {
		d.rule.After--
		return 0
	}
	if d.rule.Times > 0 {
		if d.rule.Times--; d.rule.Times == 0 {
			d.rule = nil
		}
	}
	d.status.Failed++
	return unix.EIO
}

func (d *device) read(b []byte, at int64) (int, unix.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.admit(Read); e != 0 {
		return 0, e
	}
	n, err := unix.Pread(int(d.image.Fd()), b, at)
	return max(n, 0), errno(err)
}

func (d *device) write(b []byte, at int64) unix.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.admit(Write); e != 0 {
		return e
	}
	was := make([]byte, len(b))
	if _, err := unix.Pread(int(d.image.Fd()), was, at); err != nil {
		return errno(err)
	}
	d.cache = append(d.cache, overwritten{at, was})
	_, err := unix.Pwrite(int(d.image.Fd()), b, at)
	return errno(err)
}

func (d *device) flush() unix.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.admit(Flush); e != 0 {
		return e
	}
	d.cache = nil
	return 0
}

// set replaces the rule; nil heals.
func (d *device) set(r *rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rule, d.dead = r, false
}

// cut takes the power away: every write since the last flush is undone.
func (d *device) cut() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
	for i := len(d.cache) - 1; i >= 0; i-- {
		o := d.cache[i]
		if _, err := unix.Pwrite(int(d.image.Fd()), o.was, o.at); err != nil {
			return err
		}
	}
	d.cache = nil
	return nil
}

func (d *device) report() status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

func errno(err error) unix.Errno {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return unix.EIO
}
