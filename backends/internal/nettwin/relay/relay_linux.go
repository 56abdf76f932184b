package relay

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Limits of one twin. What is over them is dropped, and the twin's kernel tries
// again as it would on a busy network.
const (
	maxLanes    = 1024
	maxDials    = 512 // streams whose outer handshake is under way
	maxStreams  = 8192
	maxUDPFlows = 4096
	window      = 512 << 10
	maxWindow   = 4 << 20
)

// Relay is the running state of the process.
type Relay struct {
	stack  *stack.Stack
	hops   *hops
	host   *kernel // of the host: which way would it go?
	ways   *asker  // makes the host go another
	limits *limits
	cut    bool
	allow  atomic.Pointer[Allow]
	loop   loopback
	// translates: the host's own nat may send what it sends elsewhere.
	translates atomic.Bool

	mu     sync.RWMutex
	lanes  map[tcpip.NICID]*lane
	dials  map[stack.TransportEndpointID]*syn
	moored map[stack.TransportEndpointID]*lane // streams that are carried
	given  int                                 // of them, those given up
	counts counters

	streams   atomic.Int64
	udpFlows  atomic.Int64 // to the host's loopback
	datagrams udpTable
	echoes    echoes
	pieces    pieces
	idle      Idle
	stalls    stalls
}

// counters are the live form of [Counts].
type counters struct {
	flows, refused, unmirrored, fenced, dropped atomic.Uint64
}

// newRelay makes a relay that has no interface yet.
func newRelay(host *kernel, ways *asker) (*Relay, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return nil, fmt.Errorf("read clock: %w", err)
	}
	r := &Relay{
		hops: newHops(), host: host, ways: ways, limits: newLimits(uint64(now.Nano())), idle: conntrack,
		lanes: map[tcpip.NICID]*lane{}, dials: map[stack.TransportEndpointID]*syn{}, moored: map[stack.TransportEndpointID]*lane{},
	}
	r.allow.Store(&Allow{})
	log.Log().Emitter = silent{} // not SetTarget: some loggers hold the old one
	r.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	// The server often closes first, and our endpoint would then sit in TIME_WAIT
	// and swallow the SYN of a new stream from the same port: a forwarder is not
	// a listening endpoint.
	wait := tcpip.TCPTimeWaitTimeoutOption(0)
	// Nothing is lost between the stack and the twin, and all that looks like loss is
	// a busy machine: a probe for a lost tail, a timer that was too quick. Each halved
	// the window, and 64 KiB went out as crumbs of 8.
	recovery, patient := tcpip.TCPRecovery(0), tcpip.TCPMinRTOOption(time.Second)
	for _, o := range []tcpip.SettableTransportProtocolOption{
		&sack, &moderate, &wait, &recovery, &patient,
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: window, Max: maxWindow},
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: window, Max: 2 * window},
	} {
		if err := r.stack.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return nil, fmt.Errorf("set %T: %s", o, err)
		}
	}
	r.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, r.takeTCP)
	r.stack.SetTransportProtocolHandler(udp.ProtocolNumber, r.takeUDP)
	return r, nil
}

// silent drops the stack's own log: what it says is said by hostile frames.
type silent struct{}

func (silent) Emit(int, log.Level, time.Time, string, ...any) {}

// laneOf returns the lane of a next hop, making it for its first packet. Nil:
// there are too many.
func (r *Relay) laneOf(h *hop) *lane {
	if l := h.lane.Load(); l != nil {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := h.lane.Load(); l != nil {
		return l
	}
	if len(r.lanes) >= maxLanes {
		r.counts.dropped.Add(1)
		r.limit(&way.Limit{Kind: way.Load, Subject: h.itf.Name, Reason: fmt.Sprintf("more than %d next hops are in use", maxLanes)})
		return nil
	}
	l := &lane{relay: r, hop: h, nic: tcpip.NICID(len(r.lanes) + 1)}
	if err := r.stack.CreateNIC(l.nic, l); err != nil {
		r.counts.dropped.Add(1)
		return nil
	}
	// Every address of the world is reached over this NIC, and is ours on it.
	r.stack.SetPromiscuousMode(l.nic, true)
	r.stack.SetSpoofing(l.nic, true)
	r.stack.AddRoute(tcpip.Route{Destination: header.IPv4EmptySubnet, NIC: l.nic})
	r.stack.AddRoute(tcpip.Route{Destination: header.IPv6EmptySubnet, NIC: l.nic})
	// The number of dials is bounded over all lanes, in takeTCP.
	l.tcp = tcp.NewForwarder(r.stack, window, 2*maxDials+1, l.dialTCP)
	l.udp = udp.NewForwarder(r.stack, l.startUDP)
	r.lanes[l.nic] = l
	h.lane.Store(l)
	return l
}

func (r *Relay) lane(nic tcpip.NICID) *lane {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.lanes[nic]
}

// limit remembers something that the twin could not do as the host would.
func (r *Relay) limit(l *way.Limit) { r.limits.add(*l) }

// Counts returns what was seen so far.
func (r *Relay) Counts() Counts {
	c := &r.counts
	return Counts{
		Flows: c.flows.Load(), Refused: c.refused.Load(), Unmirrored: c.unmirrored.Load(), Fenced: c.fenced.Load(),
		Dropped: c.dropped.Load(), Open: uint64(r.streams.Load()+r.udpFlows.Load()) + uint64(r.datagrams.len()+r.echoes.len()), NextHops: uint64(r.hops.len()),
	}
}
