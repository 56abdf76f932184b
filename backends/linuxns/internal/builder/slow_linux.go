package builder

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
)

// patience is how long a filesystem that depends on another machine or process
// may take to be layered.
const patience = 5 * time.Second

// staged is the overlay of a piece, detached, or why there is none.
type staged struct {
	piece piece
	tree  int
	err   error
}

// slow stages the pieces whose server could be gone, at once, each on a thread
// and in a mount namespace of its own, and only for a while. A thread that hangs
// is left behind, since the kernel does not interrupt such a call, and whatever
// is mounted in its namespace stays mounted with it. So this comes first, when
// there is no overlay with an upper yet.
func (b *build) slow(pieces []piece) error {
	waiting := map[int]chan staged{}
	for i := range pieces {
		p := &pieces[i]
		if p.Treatment != mountplan.Layer || !p.Slow || i == 0 {
			continue
		}
		if slices.Contains(b.Silent, p.name()) {
			b.silent(p)
			continue
		}
		waiting[i] = make(chan staged, 1)
		go b.apart(*p, i, waiting[i])
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	late := false
	for i := range pieces {
		done, ok := waiting[i]
		if !ok {
			continue
		}
		if !late {
			select {
			case s := <-done:
				if err := b.take(&pieces[i], i, s); err != nil {
					return err
				}
				continue
			case <-limit.C:
				late = true
			}
		}
		select {
		case s := <-done:
			if err := b.take(&pieces[i], i, s); err != nil {
				return err
			}
		default:
			b.silent(&pieces[i])
			go func() { // should it come back after all
				if s := <-done; s.err == nil {
					unix.Close(s.tree)
				}
			}()
		}
	}
	return nil
}

// name says which mount this is; ids are others in every mount namespace.
func (p *piece) name() string { return p.Dev + " " + p.Point }

// silent excludes a piece that did not answer, now or in an earlier build.
func (b *build) silent(p *piece) {
	p.exclude(fmt.Errorf("%s did not answer within %v", p.FS, patience))
	b.view.Silent = append(b.view.Silent, p.name())
}

// take attaches what a thread has made.
func (b *build) take(p *piece, i int, s staged) error {
	if s.err != nil {
		p.exclude(s.err)
		return nil
	}
	*p = s.piece
	return b.keep(p, strconv.Itoa(i), s.tree)
}

// apart stages one piece in a copy of the builder's mount namespace.
func (b *build) apart(p piece, i int, done chan<- staged) {
	runtime.LockOSThread() // never unlocked
	s := staged{piece: p, tree: -1}
	s.err = enter(b.self, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		// The scratch directory of this namespace; its content is the same.
		dir, err := os.OpenFile(b.Dir.Path(envdir.Build), os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer dir.Close()
		self, err := os.Open("/proc/thread-self/ns/mnt")
		if err != nil {
			return err
		}
		defer self.Close()
		own := &build{Request: b.Request, self: self, scratch: int(dir.Fd()), root: -1}
		s.tree, err = own.stage(&s.piece, i)
		return err
	})
	done <- s
}
