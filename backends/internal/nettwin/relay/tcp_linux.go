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

// patience is how long an outer handshake is left alone when there are too many.
const patience = time.Second

// syn is a stream whose outer handshake is under way.
type syn struct {
	quote  []byte // the head of its first packet: an ICMP answer must quote it
	began  time.Time
	ctx    context.Context // of the one dial that this is
	cancel context.CancelFunc
	given  bool // given up for a newer one; about to end
}

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
	if r.dials[f] != nil || !r.room() {
		r.mu.Unlock()
		return true // asked already, or too many: the twin's kernel asks again
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	r.dials[f] = &syn{quote: slices.Concat(pkt.NetworkHeader().Slice(), seg), began: time.Now(), ctx: ctx, cancel: cancel}
	r.mu.Unlock()
	if r.streams.Load() >= maxStreams || !l.tcp.HandlePacket(id, pkt) {
		r.forget(f)
	}
	return true
}

// room reports whether another outer handshake may begin. When all places are
// taken, the one that has waited longest is given up for it: somebody inside who
// scans a silent network must not starve the check that runs beside. The caller
// holds r.mu.
func (r *Relay) room() bool {
	if len(r.dials)-r.given < maxDials {
		return true
	}
	if r.given >= maxDials { // those given up have not ended yet
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

func (r *Relay) forget(f flow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.dials[f]
	if s == nil {
		return
	}
	s.cancel()
	if s.given {
		r.given--
	}
	delete(r.dials, f)
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
	w, no := l.choose(unix.IPPROTO_TCP, source(id.RemoteAddress, id.RemotePort), dst)
	if no != nil {
		l.refuse(s.quote, no)
		req.Complete(false)
		return
	}
	d := net.Dialer{Control: w.control, KeepAlive: -1}
	c, err := d.DialContext(s.ctx, "tcp", dst.String())
	if err != nil {
		w.release()
		l.fail(s.quote, dst, err)
		req.Complete(errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET))
		return
	}
	out := c.(*net.TCPConn)
	if no := w.confirm(out.LocalAddr().(*net.TCPAddr).AddrPort()); no != nil {
		reset(out)
		w.release()
		l.refuse(nil, no)
		req.Complete(true)
		return
	}
	var q waiter.Queue
	ep, terr := req.CreateEndpoint(&q)
	req.Complete(false)
	if terr != nil { // the twin's client is gone
		reset(out)
		w.release()
		return
	}
	ep.SocketOptions().SetDelayOption(false)
	r.counts.flows.Add(1)
	r.streams.Add(1)
	go func() {
		defer r.streams.Add(-1)
		join(out, ep, &q)
		w.release()
	}()
}

// reset closes an outer connection so that the far end sees it.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
