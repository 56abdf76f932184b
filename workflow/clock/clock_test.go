package clock

import (
	"testing"
	"time"
)

func TestSince(t *testing.T) {
	at := func(boot string, d time.Duration) Instant { return Instant{BootID: boot, Boottime: d} }
	for _, tt := range []struct {
		name         string
		now, earlier Instant
		want         time.Duration
		ok           bool
	}{
		{"later in the same boot", at("a", 5), at("a", 3), 2, true},
		{"the same moment", at("a", 5), at("a", 5), 0, true},
		{"an earlier that lies in the future", at("a", 3), at("a", 5), 0, false},
		{"another boot, however close the numbers", at("b", 5), at("a", 5), 0, false},
		{"never set", at("a", 5), Instant{}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := tt.now.Since(tt.earlier)
			if got != tt.want || ok != tt.ok {
				t.Errorf("Since = %v, %v; want %v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}
