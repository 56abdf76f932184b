package relay

import (
	"net/netip"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Argv0 is the name under which the executable becomes the relay: main, and a
// TestMain, that sees it as its argv[0] calls [Main] at once.
const Argv0 = "netsandbox-relay"

// controlFD is the descriptor on which the relay finds its end of the control
// socket (SOCK_SEQPACKET, one JSON request or answer a packet).
const controlFD = 3

// Message sizes: an allow-list is the longest thing that is ever said.
const maxMessage = 64 << 10

// Request is one order of the twin to its relay. Exactly one field is set beside
// the number.
type Request struct {
	ID uint64 `json:"id"` // which the answer repeats
	// Interface hands over one TAP; its descriptor comes with the packet.
	Interface *Interface `json:"interface,omitempty"`
	// Listen hands over a socket that serves the twin's loopback.
	Listen *Listen `json:"listen,omitempty"`
	// Allow replaces the list of host services on loopback that may be dialled.
	Allow *Allow `json:"allow,omitempty"`
	// Start confines the process and begins to serve.
	Start *Start `json:"start,omitempty"`
	// Translates says whether the host has address translation of its own for what
	// it sends.
	Translates *bool `json:"translates,omitempty"`
	// Limits asks for those met after a number.
	Limits *uint64 `json:"limits,omitempty"`
	// Met is a limit that the twin met itself, to be numbered among the others.
	Met *way.Limit `json:"met,omitempty"`
	// Count asks for the counters.
	Count bool `json:"count,omitempty"`
}

// Interface is one TAP or TUN of the twin and the host interface it stands for.
type Interface struct {
	Name  string `json:"name"`
	Index int    `json:"index"` // on the host
	MAC   []byte `json:"mac"`   // of the twin's side
	MTU   uint32 `json:"mtu"`
	// Tun says that packets come bare. Such a link has no next hops: whatever is
	// routed to it is one lane.
	Tun bool `json:"tun,omitempty"`
	// Mute says that the host's interface has a link layer and does not ask for
	// neighbours (IFF_NOARP): whatever is routed to it is one lane, too.
	Mute bool `json:"mute,omitempty"`
	// Static lists next hops whose MAC the twin was told, not asked for.
	Static []NextHop `json:"static,omitempty"`
}

// NextHop is an address on an interface and the MAC by which frames to it are
// recognised.
type NextHop struct {
	Addr netip.Addr `json:"addr"`
	MAC  []byte     `json:"mac"`
}

// Listen is a socket that serves the twin's loopback.
type Listen struct {
	Kind LoopKind `json:"kind"`
}

// Allow is the list of host services that the twin may reach on loopback and
// on the host's own addresses.
type Allow struct {
	Ports []uint16         `json:"ports,omitempty"` // on any address of the host
	Exact []netip.AddrPort `json:"exact,omitempty"` // on this address only
}

// Start says how to serve.
type Start struct {
	// Cut refuses the way out: every flow is answered with silence.
	Cut bool `json:"cut,omitempty"`
	// Translates is as in [Request].
	Translates bool `json:"translates,omitempty"`
	// Idle replaces the times after which flows end.
	Idle *Idle `json:"idle,omitempty"`
}

// Idle is how long a flow lives on in which nothing moves.
type Idle struct {
	Unanswered time.Duration `json:"unanswered"` // datagrams that nobody answered yet
	Answered   time.Duration `json:"answered"`
	Echo       time.Duration `json:"echo"`
}

// conntrack is what the host's connection tracking grants (nf_conntrack_udp_timeout,
// nf_conntrack_udp_timeout_stream, nf_conntrack_icmp_timeout).
var conntrack = Idle{Unanswered: 30 * time.Second, Answered: 120 * time.Second, Echo: 30 * time.Second}

// Answer is the reply to a request.
type Answer struct {
	ID     uint64 `json:"id"`
	Err    string `json:"err,omitempty"`
	Counts Counts `json:"counts,omitzero"`
	// Limits are those asked for, and Next the number to ask with the next time.
	Limits []way.Limit `json:"limits,omitempty"`
	Next   uint64      `json:"next,omitempty"`
}

// Counts is what a relay has seen since it started.
type Counts struct {
	Flows      uint64 `json:"flows"`      // streams and datagram flows carried
	Open       uint64 `json:"open"`       // of them, those that have not ended
	Refused    uint64 `json:"refused"`    // dials that the outside refused or did not answer
	Unmirrored uint64 `json:"unmirrored"` // flows that the host cannot be made to carry as the twin would
	Fenced     uint64 `json:"fenced"`     // flows to an address of the host itself
	Dropped    uint64 `json:"dropped"`    // frames with a MAC that was never handed out, or over a limit
	NextHops   uint64 `json:"next_hops"`
}
