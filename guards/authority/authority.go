// Package authority says who may let a plan reach the host.
//
// A [Grant] names one plan digest, one cycle and one trial. It is pure data;
// asking a terminal or checking a signature is the workflow's part.
package authority

import "time"

// Level is the policy chosen at create.
type Level string

// The authority levels. Only Signed resists an agent that is root itself.
const (
	Root     Level = "root"     // --yes by uid 0, or by the owner on a base of their own
	Terminal Level = "terminal" // a human answers on a controlling terminal
	Signed   Level = "signed"   // an ssh signature by a key the view cannot read
)

// Levels lists the levels in the order of the help text.
func Levels() []Level { return []Level{Root, Terminal, Signed} }

// Grant is authority for exactly one plan.
type Grant struct {
	ID    string `json:"id"`
	Plan  string `json:"plan"` // the plan digest
	Cycle int    `json:"cycle"`
	Level Level  `json:"level"`
	By    string `json:"by"`  // who: "uid 0", "uid 1000 (sudo by alice)"
	How   string `json:"how"` // "--yes", "terminal", "signature"
	// BootID and Expires date it: CLOCK_BOOTTIME of that boot. Another boot ends it.
	BootID  string        `json:"boot_id"`
	Expires time.Duration `json:"expires_boottime_ns"`
	At      time.Time     `json:"at"`    // wall clock, for people
	Until   time.Time     `json:"until"` // wall clock, for people
	Used    bool          `json:"used"`  // a trial began with it
	Revoked bool          `json:"revoked"`
}

// Default is how long a grant lasts when nobody says.
const Default = 10 * time.Minute

// Holds reports whether g covers the plan digest in the cycle at the instant,
// and if not, why.
func (g *Grant) Holds(plan string, cycle int, bootID string, now time.Duration) (ok bool, why string) {
	switch {
	case g == nil:
		return false, "no authority was given for this plan"
	case g.Revoked:
		return false, "the grant was revoked"
	case g.Used:
		return false, "the grant was used by an earlier trial"
	case g.Plan != plan:
		return false, "the grant is for another plan"
	case g.Cycle != cycle:
		return false, "the grant is from an earlier cycle"
	case g.BootID != bootID:
		return false, "the grant is from before the last boot"
	case now > g.Expires:
		return false, "the grant expired"
	}
	return true, ""
}
