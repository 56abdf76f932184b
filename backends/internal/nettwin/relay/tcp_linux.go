package relay

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// dialTimeout bounds one outer handshake. The twin's own client usually gives up
// before, and after it the next SYN starts a new one.
const dialTimeout = 20 * time.Second

// syn is the head of the packet that began a stream, held while its outer
// handshake is under way: an ICMP answer must quote it.
type syn struct{ quote []byte }

// takeTCP takes every segment that belongs to no endpoint.
func (r *Relay) takeTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	l := r.lane(pkt.NICID)
	if l == nil || r.cut {
		return true
	}
	seg := header.TCP(pkt.TransportHeader().Slice())
	if seg.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return false // the stack resets it
	}
	f := flow{pkt.NICID, id}
	r.mu.Lock()
	if r.dials[f] != nil || len(r.dials) >= maxDials {
		r.mu.Unlock()
		return true // asked already, or too many: the twin's kernel asks again
	}
	r.dials[f] = &syn{slices.Concat(pkt.NetworkHeader().Slice(), seg)}
	r.mu.Unlock()
	if r.streams.Load() >= maxStreams || !l.tcp.HandlePacket(id, pkt) {
		r.forget(f)
	}
	return true
}

func (r *Relay) forget(f flow) {
	r.mu.Lock()
	delete(r.dials, f)
	r.mu.Unlock()
}

// dialTCP completes the twin's handshake only if the outer one completes, so
// that a connect inside is as honest as one on the host.
func (l *lane) dialTCP(req *tcp.ForwarderRequest) {
	r, id := l.relay, req.ID()
	f := flow{l.nic, id}
	r.mu.RLock()
	s := r.dials[f]
	r.mu.RUnlock()
	defer r.forget(f)

	dst := l.target(id.LocalAddress, id.LocalPort)
	switch l.judge(dst.Addr().WithZone("")) {
	case fenced:
		r.counts.fenced.Add(1)
		l.unreachable(s.quote, prohibited)
		req.Complete(false)
		return
	case unmirrored:
		r.counts.unmirrored.Add(1)
		l.unreachable(s.quote, hostUnreachable)
		req.Complete(false)
		return
	}
	d := net.Dialer{Timeout: dialTimeout, Control: l.bind, KeepAlive: -1}
	c, err := d.DialContext(context.Background(), "tcp", dst.String())
	if err != nil {
		r.counts.refused.Add(1)
		if why, ok := codeOf(err); ok {
			l.unreachable(s.quote, why)
		}
		req.Complete(errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET))
		return
	}
	out := c.(*net.TCPConn)
	var q waiter.Queue
	ep, terr := req.CreateEndpoint(&q)
	req.Complete(false)
	if terr != nil { // the twin's client is gone
		reset(out)
		return
	}
	ep.SocketOptions().SetDelayOption(false)
	r.counts.flows.Add(1)
	go func() {
		r.streams.Add(1)
		defer r.streams.Add(-1)
		join(out, ep, &q)
	}()
}

// reset closes an outer connection so that the far end sees it.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
