package clock

import "time"

// Instant is a moment of one boot.
type Instant struct {
	BootID   string        `json:"boot_id"`
	Boottime time.Duration `json:"boottime_ns"` // since that boot, suspend included
	At       time.Time     `json:"at"`          // wall clock, UTC, for people only
}

// Func returns the present instant; tests move it.
type Func func() (Instant, error)

// Since returns how much time passed between earlier and i. It reports false
// when there is no answer: another boot, or an earlier that lies in the future
// of i and so belongs to another timeline.
func (i Instant) Since(earlier Instant) (time.Duration, bool) {
	d := i.Boottime - earlier.Boottime
	if i.BootID != earlier.BootID || d < 0 {
		return 0, false
	}
	return d, true
}

// SameBoot reports whether both instants belong to one boot.
func (i Instant) SameBoot(o Instant) bool { return i.BootID == o.BootID }

// IsZero reports whether i was never set.
func (i Instant) IsZero() bool { return i.BootID == "" }
