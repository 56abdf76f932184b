package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// dialTimeout bounds one outer handshake. The twin's own client usually gives up
// before, and after it the next SYN starts a new one.
const dialTimeout = 20 * time.Second

// patience is how long an outer handshake is left alone when there are too many.
const patience = time.Second

// syn is a stream whose outer handshake is under way.
type syn struct {
	lane   *lane
	quote  []byte // the head of its first packet: an ICMP answer must quote it
	mss    int
	began  time.Time
	ctx    context.Context // of the one dial that this is
	cancel context.CancelFunc
	given  bool // given up for a newer one; about to end
}

// takeTCP takes every segment that belongs to no endpoint of its lane.
func (r *Relay) takeTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	l := r.lane(pkt.NICID)
	if l == nil || r.cut {
		return true
	}
	if at := r.mooring(id); at != nil && at != l {
		at.deliver(etherOf(pkt), pkt.ToBuffer())
		return true
	}
	seg := header.TCP(pkt.TransportHeader().Slice())
	if seg.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return false // the stack resets it
	}
	if r.streams.Load() >= maxStreams {
		r.limit(&way.Limit{Kind: way.Load, Subject: "streams", Reason: fmt.Sprintf("more than %d at once", maxStreams)})
		return true
	}
	s := r.begin(id, syn{lane: l, mss: mssOf(seg), quote: slices.Concat(pkt.NetworkHeader().Slice(), seg)})
	if s == nil {
		return true // asked already, or too many: the twin's kernel asks again
	}
	if !l.tcp.HandlePacket(id, pkt) {
		r.forget(id, s)
	}
	return true
}

// mooring is the lane on which a stream is carried: the one that its first segment
// took. When the twin's routes change, its kernel sends the next segment another
// way; the outer connection goes on as one of the host would, by the way it has.
func (r *Relay) mooring(id stack.TransportEndpointID) *lane {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.moored[id]
}

// begin notes an outer handshake, if there is room for one and none is under way.
// One on another lane ends: the twin's routes changed, and the SYN that its kernel
// sends again takes the new way, as the host's would.
func (r *Relay) begin(id stack.TransportEndpointID, first syn) *syn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.dials[id]; s != nil {
		if s.lane == first.lane {
			return nil
		}
		r.drop(id, s)
	}
	if len(r.dials)-r.given >= maxDials {
		r.limit(&way.Limit{Kind: way.Load, Subject: "streams", Reason: fmt.Sprintf("more than %d handshakes at once", maxDials)})
		if !r.makeRoom() {
			return nil
		}
	}
	s := &first
	s.began = time.Now()
	s.ctx, s.cancel = context.WithTimeout(context.Background(), dialTimeout)
	r.dials[id] = s
	return s
}

// makeRoom gives up the outer handshake that has waited longest: somebody inside who
// scans a silent network must not starve the check that runs beside. False: the
// others are too young, or have not ended yet. The caller holds r.mu.
func (r *Relay) makeRoom() bool {
	if r.given >= maxDials {
		return false
	}
	var old *syn
	for _, s := range r.dials {
		if !s.given && (old == nil || s.began.Before(old.began)) {
			old = s
		}
	}
	if old == nil || time.Since(old.began) < patience {
		return false
	}
	old.given = true
	r.given++
	old.cancel()
	return true
}

// forget ends an outer handshake, if it is still the one of its stream.
func (r *Relay) forget(id stack.TransportEndpointID, s *syn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dials[id] == s {
		r.drop(id, s)
	}
}

// drop is forget for a caller that holds r.mu.
func (r *Relay) drop(id stack.TransportEndpointID, s *syn) {
	s.cancel()
	if s.given {
		r.given--
	}
	delete(r.dials, id)
}

// dialTCP completes the twin's handshake only if the outer one completes, so
// that a connect inside is as honest as one on the host.
func (l *lane) dialTCP(req *tcp.ForwarderRequest) {
	r, id := l.relay, req.ID()
	r.mu.RLock()
	s := r.dials[id]
	r.mu.RUnlock()
	if s == nil || s.lane != l { // overtaken
		req.Complete(false)
		return
	}
	defer r.forget(id, s)

	w, out, err := l.dial(s, id)
	if err != nil {
		l.fail(s.quote, err)
		// A reset says "nobody listens", or that a stream ended that had begun.
		req.Complete(errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET))
		return
	}
	r.moor(id, l)
	var q waiter.Queue
	ep, terr := req.CreateEndpoint(&q)
	req.Complete(false)
	if terr != nil { // the twin's client is gone
		r.unmoor(id, l)
		reset(out)
		w.release()
		return
	}
	ep.SocketOptions().SetDelayOption(false)
	r.share(ep)
	r.counts.flows.Add(1)
	r.streams.Add(1)
	held := w.hold(out)
	go func() {
		join(out, ep, &q)
		r.unmoor(id, l)
		w.retire(held)
		r.streams.Add(-1)
	}()
}

// dial makes the outer connection of a stream. The errors are those of the outer
// socket, and a [refusal].
func (l *lane) dial(s *syn, id stack.TransportEndpointID) (*route, *net.TCPConn, error) {
	dst := l.target(id.LocalAddress, id.LocalPort)
	w, no := l.choose(unix.IPPROTO_TCP, source(id.RemoteAddress, id.RemotePort), dst)
	if no != nil {
		return nil, nil, no
	}
	w.ttl = ttlOf(s.quote)
	if no := w.segment(s.mss); no != nil {
		return nil, nil, no
	}
	out, err := w.connect(s.ctx, dst)
	if err != nil {
		return nil, nil, err
	}
	if no := w.confirm(); no != nil {
		reset(out)
		w.release()
		return nil, nil, no.afterwards()
	}
	return w, out, nil
}

// ttlOf is the time to live of a packet, its hop limit.
func ttlOf(p []byte) byte {
	if p[0]>>4 == 4 {
		return p[8]
	}
	return p[7]
}

// connect makes the connection, and makes it once more with a mark when the port
// that the kernel chose turns out to lead elsewhere, or when the way was taken away
// meanwhile: what the kernel sent again then went by the host's own.
func (w *route) connect(ctx context.Context, dst netip.AddrPort) (*net.TCPConn, error) {
	d := net.Dialer{Control: w.control, KeepAlive: -1}
	for {
		marked := w.mark
		c, err := d.DialContext(ctx, "tcp", dst.String())
		if err != nil {
			w.release()
			return nil, err
		}
		out := c.(*net.TCPConn)
		at := out.LocalAddr().(*net.TCPAddr).AddrPort()
		no := w.settle(netip.AddrPortFrom(w.flow.Src.Addr(), at.Port()))
		if no == nil && marked != 0 && w.undone() != nil {
			marked, no = 0, w.lead()
		}
		if no == nil && w.mark == marked {
			return out, nil
		}
		reset(out)
		if no != nil {
			w.release()
			return nil, no.afterwards()
		}
	}
}

func (r *Relay) moor(id stack.TransportEndpointID, l *lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moored[id] = l
}

func (r *Relay) unmoor(id stack.TransportEndpointID, l *lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moored[id] == l { // the port may be in use again
		delete(r.moored, id)
	}
}

// etherOf is the Ethernet type of a packet.
func etherOf(p *stack.PacketBuffer) uint16 {
	if p.NetworkProtocolNumber == header.IPv6ProtocolNumber {
		return etherIPv6
	}
	return etherIPv4
}

// reset closes an outer connection so that the far end sees it.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
