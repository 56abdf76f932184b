package authority

import (
	"testing"
	"time"
)

func TestHolds(t *testing.T) {
	grant := Grant{Plan: "p", Cycle: 1, BootID: "a", Expires: time.Hour}
	with := func(change func(*Grant)) *Grant {
		g := grant
		change(&g)
		return &g
	}
	for _, row := range []struct {
		name  string
		grant *Grant
		plan  string
		cycle int
		boot  string
		now   time.Duration
		why   string // empty: it holds
	}{
		{"for this plan", &grant, "p", 1, "a", time.Minute, ""},
		{"in its last instant", &grant, "p", 1, "a", time.Hour, ""},
		{"none", nil, "p", 1, "a", 0, "no authority was given for this plan"},
		{"for another plan", &grant, "q", 1, "a", 0, "the grant is for another plan"},
		{"in a later cycle", &grant, "p", 2, "a", 0, "the grant is from an earlier cycle"},
		{"after a reboot", &grant, "p", 1, "b", 0, "the grant is from before the last boot"},
		{"a nanosecond late", &grant, "p", 1, "a", time.Hour + 1, "the grant expired"},
		{"a second time", with(func(g *Grant) { g.Used = true }), "p", 1, "a", 0, "the grant was used by an earlier trial"},
		{"taken back", with(func(g *Grant) { g.Revoked = true }), "p", 1, "a", 0, "the grant was revoked"},
		{
			"taken back is said before used", with(func(g *Grant) { g.Used, g.Revoked = true, true }), "p", 1, "a", 0,
			"the grant was revoked",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			ok, why := row.grant.Holds(row.plan, row.cycle, row.boot, row.now)
			if ok != (row.why == "") || why != row.why {
				t.Errorf("Holds = %v, %q; want %q", ok, why, row.why)
			}
		})
	}
}

func TestLevelsAreThoseOfTheFlag(t *testing.T) {
	want := []Level{"root", "terminal", "signed"}
	got := Levels()
	if len(got) != len(want) {
		t.Fatalf("levels are %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("level %d is %q, want %q", i, got[i], want[i])
		}
	}
}
