package lanes

import (
	"fmt"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/sockdiag"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// room makes sure that one more lane may be made. The one longest not asked for
// goes, of those that carry nothing: a socket whose mark has lost its rule would
// go on by the host's own table, and one whose mark was given to another lane by
// that lane.
func (l *Lanes) room(w way.Lane) error {
	if len(l.lanes) < capacity {
		return nil
	}
	busy, err := l.busy()
	if err != nil {
		return err
	}
	var oldest *lane
	for _, ln := range l.lanes {
		if ln.open == 0 && !busy[ln.number] && (oldest == nil || ln.used.Before(oldest.used)) {
			oldest = ln
		}
	}
	if oldest == nil || l.now().Sub(oldest.used) < grace {
		return l.limit(way.Load, w, fmt.Sprintf("all %d lanes of the environment are in use", capacity))
	}
	if err := l.unmake(oldest); err != nil {
		return fmt.Errorf("make room for a lane: %w", err)
	}
	return nil
}

// busy lists the numbers that sockets of the host have as marks.
func (l *Lanes) busy() (map[uint32]bool, error) {
	c, err := sockdiag.Dial(int(l.host.Fd()))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	marks, err := c.Marks(l.claim.block.number(0), mask&^hopMask)
	if err != nil {
		return nil, fmt.Errorf("look for sockets of lanes: %w", err)
	}
	numbers := map[uint32]bool{}
	for m := range marks {
		numbers[m&mask] = true
	}
	return numbers, nil
}
