package change

import (
	"math"
	"testing"
	"time"
)

func TestNanos(t *testing.T) {
	for name, c := range map[string]struct {
		sec  int64
		nsec uint32
		want int64
	}{
		"the epoch":               {0, 0, 0},
		"before it":               {-1, 999_999_999, -1},
		"now":                     {1_795_995_872, 5, 1_795_995_872_000_000_005},
		"the last":                {math.MaxInt64 / 1_000_000_000, 854_775_807, math.MaxInt64},
		"a nanosecond later":      {math.MaxInt64 / 1_000_000_000, 854_775_808, math.MaxInt64},
		"ext4's last":             {15032385535, 999_999_999, math.MaxInt64},
		"xfs's last with bigtime": {time.Date(2486, 7, 2, 0, 0, 0, 0, time.UTC).Unix(), 0, math.MaxInt64},
		"what tmpfs takes":        {math.MinInt64, 0, math.MinInt64},
		"and the other way":       {math.MaxInt64, 999_999_999, math.MaxInt64},
	} {
		if got := Nanos(c.sec, c.nsec); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
