package change

import "math"

// Nanos is a file time as an [Entry] has it. A filesystem may have times that do
// not fit, before 1677 or after 2262: they become the nearest that does, where
// wrapping around would make the distant future the past.
func Nanos(sec int64, nsec uint32) int64 {
	const second = 1_000_000_000
	switch {
	case sec > (math.MaxInt64-int64(nsec))/second:
		return math.MaxInt64
	case sec < math.MinInt64/second:
		return math.MinInt64
	}
	return sec*second + int64(nsec)
}
