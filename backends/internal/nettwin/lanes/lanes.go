package lanes

// Options say what a set of lanes is for and what the host's packet filter is
// known to do. All of it may be left out.
type Options struct {
	Record string // path of the durable intent file; "": none
	Owner  string // name of the environment, for whoever finds its objects
	// Marks lists the marks that the host's packet filter reads or writes; numbers
	// keep clear of them. What it says is kept until [Lanes.Ensure].
	Marks func() ([]Mark, error)
	// Filters names what in the host's packet filter drops packets that arrive on
	// another interface than the one of the way back ("fib saddr . iif oif missing
	// drop"). A name that begins with "ip " or "ip6 " is about that family alone.
	// Kept like the marks.
	Filters func() ([]string, error)
}

// Object is one route or rule that carries our tag.
type Object struct {
	Text  string // as ip(8) shows it: "rule pref 5100 …", "route default …"
	Six   bool
	Block int    // of numbers
	Alive bool   // its owner lives
	PID   int    // of the owner, as far as it can be seen from here
	Owner string // name of the environment, when the owner answers
}

// The kinds of conflict.
const (
	ConflictPref        = "pref"      // a rule stands before the place that ours would have
	ConflictMark        = "mark"      // somebody uses marks of our range
	ConflictTable       = "table"     // somebody uses tables of our range
	ConflictProtocol    = "protocol"  // somebody else tags routes or rules as we do
	ConflictReversePath = "rp_filter" // an interface drops answers that come another way
)

// Conflict is something of the host that makes lanes evade it, or do without.
type Conflict struct {
	Kind    string
	Subject string // "rule pref 1 from all lookup 77", "eth1"
	Reason  string // a clause
	Bars    bool   // there is no way round it: no lane can be made
}
