//go:build !linux

package clock

import (
	"errors"
	"time"
)

// Now is not available here.
func Now() (Instant, error) { return Instant{}, errors.ErrUnsupported }

// Boottime is not available here.
func Boottime() (time.Duration, error) { return 0, errors.ErrUnsupported }
