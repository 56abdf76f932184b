// Package way is the vocabulary between the relay, which sees which way the
// twin's kernel chose, and whoever may make the host's kernel go that way: the
// relay itself has no right to change anything.
package way

import "net/netip"

// Lane is one way out: an interface of the host and a next hop on it.
type Lane struct {
	Index int `json:"index"` // of the interface, on the host
	// NextHop is the gateway. Not valid: destinations are on the link themselves,
	// one lane for all of them.
	NextHop netip.Addr `json:"next_hop,omitzero"`
	// Six says that the lane carries IPv6; an IPv4 lane may have an IPv6 gateway.
	Six bool `json:"six,omitempty"`
}

// Flow is one stream or datagram flow as the host's kernel sees it.
type Flow struct {
	Proto uint8          `json:"proto"` // IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, …
	Src   netip.AddrPort `json:"src"`   // the port is known once the socket is bound
	Dst   netip.AddrPort `json:"dst"`
	Lane  Lane           `json:"lane"`
}

// Keeper makes lanes on the host and removes them. Its errors are [*Limit] when
// the host cannot be made to do as the twin does.
type Keeper interface {
	// Lane returns the mark (SO_MARK) of packets that the host sends by this lane,
	// making what that takes with the first call.
	Lane(Lane) (mark uint32, err error)
	// Admit lets the answers to a marked flow in, although the host's reverse path
	// filter would look for them on another interface. It is called before the
	// first packet. What it made goes with Release.
	Admit(Flow) error
	Release(Flow)
	// Translated says where the host's own address translation sends a flow whose
	// first packet was sent. Not valid: it is not translated. That it gives the flow
	// another source is a limit.
	Translated(Flow) (netip.AddrPort, error)
}

// Holder is a [Keeper] that knows for which flows the host holds something since
// Admit. Nothing but the packets of such a flow comes in, and no ICMP error about it:
// its own addresses and ports are all that lets it pass the reverse path filter.
type Holder interface {
	Holds(Flow) bool
}

// Kind says in a word what of the host the twin could not do likewise.
type Kind string

// The kinds of limit.
const (
	Route       Kind = "route"       // the host cannot be made to go that way
	Source      Kind = "source"      // the source address is not the host's
	ReversePath Kind = "rp_filter"   // the host would drop the answers
	Protocol    Kind = "protocol"    // neither TCP, UDP nor an echo request
	Translation Kind = "translation" // the host's own nat treats the flow otherwise than the twin's
	Link        Kind = "link"        // the interface is gone or down on the host
	Load        Kind = "load"        // more of something than a twin may have
	Firewall    Kind = "firewall"    // the host's firewall refused what the twin's allowed
)

// Limit is something that the twin could not do as the host would. A probe that
// failed while one was met proves nothing about the candidate.
type Limit struct {
	Kind    Kind   `json:"kind"`
	Subject string `json:"subject"` // "eth1 via 198.51.100.1", "192.0.2.77", "SCTP"
	Reason  string `json:"reason"`  // a clause: "the interface is down on the host"
}

// Error implements error.
func (l *Limit) Error() string { return l.Subject + ": " + l.Reason }
