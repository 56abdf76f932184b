package hostfiles

import (
	"sync"
	"time"

	"github.com/netsandbox/netsandbox/backends/change"
)

// content is what a file held when it was what node says.
type content struct {
	node node
	sum  string
}

// readAhead reads, on all processors, what the undo is about to judge one by one.
// Only what has held still for a tick is kept: a later write then shows in the
// change time, and the file is read again. Nothing is an error here: whatever
// cannot be read now is read, or named, when its turn comes.
func (u *undoer) readAhead() {
	if workers(len(u.steps)) == 1 {
		return
	}
	var mu sync.Mutex
	u.ahead = make(map[change.Path]content, len(u.steps))
	_ = u.share(len(u.steps), func(t *tree, i int) error {
		s := u.steps[i]
		if s.Place.Staged == nil || s.Change.New == nil || s.Change.New.Type != change.Regular {
			return nil
		}
		dir, base, err := t.parent(s.Change.Path)
		if err != nil {
			return nil
		}
		begun := time.Now()
		at, err := stat(dir, base)
		if err != nil || at.kind() != change.Regular || begun.UnixNano()-at.ctime < int64(tick) {
			return nil
		}
		after, sum, err := t.read(dir, base, at)
		if err != nil || !still(*at, *after) {
			return nil
		}
		mu.Lock()
		u.ahead[s.Change.Path] = content{*after, sum}
		mu.Unlock()
		return nil
	})
}

// still reports that nothing happened to an object between two looks. Its blocks
// move with write-back.
func still(a, b node) bool {
	b.held = a.held
	return a == b
}

// content is read, unless what was read ahead still holds.
func (u *undoer) content(dir int, base string, at *node, p change.Path) (*node, string, error) {
	if c, ok := u.ahead[p]; ok && still(c.node, *at) {
		return at, c.sum, nil
	}
	return u.read(dir, base, at)
}
