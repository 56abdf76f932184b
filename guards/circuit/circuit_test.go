package circuit

import (
	"testing"
	"time"
)

func TestFresh(t *testing.T) {
	o := Observation{BootID: "a", Boottime: time.Hour}
	for _, row := range []struct {
		name string
		boot string
		now  time.Duration
		want bool
	}{
		{"at once", "a", time.Hour, true},
		{"at the end of the window", "a", time.Hour + Window, true},
		{"a nanosecond later", "a", time.Hour + Window + 1, false},
		{"on another boot", "b", time.Hour, false},
		{"a nanosecond before it was made", "a", time.Hour - 1, false},
		{"on another boot, at the same reading", "b", time.Hour + Window, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := o.Fresh(row.boot, row.now); got != row.want {
				t.Errorf("Fresh(%q, %v) = %v", row.boot, row.now, got)
			}
		})
	}
}

func TestHolds(t *testing.T) {
	for r, want := range map[Result]bool{
		Preserved: true, New: true, Degraded: true, Insensitive: true,
		Lost: false, Unverifiable: false, Ignored: false, Pending: false, "": false, "preserved": false,
	} {
		if got := r.Holds(); got != want {
			t.Errorf("%q.Holds() = %v, want %v", r, got, want)
		}
	}
}

// TestEndpoint: two circuits to one address are one endpoint, two canaries never.
func TestEndpoint(t *testing.T) {
	a := Definition{ID: "c1", Kind: TCP, Address: "192.0.2.1:443"}
	b := Definition{ID: "c2", Kind: Outbound, Address: "192.0.2.1:443"}
	if a.Endpoint() != b.Endpoint() {
		t.Errorf("%q and %q differ", a.Endpoint(), b.Endpoint())
	}
	c, d := Definition{ID: "c3", Kind: Canary}, Definition{ID: "c4", Kind: Canary}
	if c.Endpoint() == d.Endpoint() {
		t.Errorf("two canaries share the endpoint %q", c.Endpoint())
	}
}
