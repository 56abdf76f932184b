package world

import (
	"fmt"
	"math"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin"
)

// maxUnproven bounds what is said of one probe.
const maxUnproven = 8

// watch knows which limits a twin had met before a probe.
type watch struct {
	twin *nettwin.Twin
	from uint64
}

// watch makes host and twin ready for a probe and begins to note what they cannot
// do. A twin whose relay is dead proves nothing and is an error.
func (e Env) watch(t *nettwin.Twin) (watch, error) {
	if e.Ensure != nil {
		if err := e.Ensure(); err != nil {
			return watch{}, fmt.Errorf("make ways ready: %w", err)
		}
	}
	if err := t.Look(); err != nil {
		return watch{}, err
	}
	_, now, err := t.Limits(math.MaxUint64)
	return watch{t, now}, err
}

// met lists what the twin could not do as the host would since the watch began.
// Canaries that ran at the same time share it: which of them met a limit is not
// known, so each is told.
func (w watch) met() []string {
	limits, _, err := w.twin.Limits(w.from)
	if err != nil {
		return []string{err.Error()}
	}
	var lines []string
	for _, l := range limits {
		if len(lines) == maxUnproven-1 && len(limits) > maxUnproven {
			return append(lines, fmt.Sprintf("and %d more", len(limits)-len(lines)))
		}
		lines = append(lines, l.Error())
	}
	return lines
}
